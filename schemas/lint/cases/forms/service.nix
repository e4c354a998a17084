# Words of another language are not those of a shell.
# expect: nothing
{
  script = ''
    python3 -m sglang.launch_server --model-path target --max-running-requests 16 --tp
  '' + limit;
}
