# expect: SD001 error
python3 -c "import sglang as sgl; sgl.Engine(model_path='org/m', speculative_algorithm='FOO')"
