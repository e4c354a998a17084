# expect: SD193 warning
pip install sglang==0.5.16
export HIP_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
python3 -m sglang.launch_server --model-path amd/GLM-5.2-MXFP4 --tp-size 8 --dp-size 8 --enable-dp-attention --dsa-prefill-backend tilelang --dsa-decode-backend tilelang
