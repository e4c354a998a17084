# An image that someone built may have flags of its own. expect: nothing
docker run --gpus all vllm-node-mxfp4 vllm serve org/m --mxfp4-backend CUTLASS --mxfp4-layers moe
