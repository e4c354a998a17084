# A second shell reads the quotes that a variable holds.
# expect: VL02 error
FLAGS=""
if [ "$WITH_MTP" = "true" ]; then
    FLAGS="--speculative-config '{\"method\":\"eagle3\",\"model\":\"draft\"}'"
fi
ssh_run "docker run -itd --name ${NAME} \
    --gpus all \
    ${DOCKER_IMAGE} \
    --model ${MODEL_PATH} \
    --max-model-len ${LEN} \
    ${FLAGS}"
