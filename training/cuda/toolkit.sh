#!/bin/sh
# Installs NVIDIA's compiler and libraries from PyPI into a folder, and prints the environment variables for a build:
#     eval "$(training/cuda/toolkit.sh target/cuda-toolkit)"
# Needs neither a GPU nor a driver, and changes nothing outside the folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?"usage: $0 FOLDER"}
version=13.0
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
root=$folder/nvidia/cu13

if [ ! -x "$root/bin/nvcc" ]; then
    "${PYTHON:-python3}" -m pip install --quiet --no-deps --target "$folder" \
        "nvidia-cuda-nvcc==$version.*" "nvidia-cuda-crt==$version.*" "nvidia-nvvm==$version.*" \
        "nvidia-cuda-runtime==$version.*" "nvidia-cuda-cccl==$version.*" "nvidia-cuda-nvrtc==$version.*" \
        "nvidia-cublas==$version.*" "nvidia-curand<10.5" >&2
fi

# Linkers look for library names without a version.
for library in cudart nvrtc curand cublas cublasLt; do
    for found in "$root/lib/lib$library.so".*; do
        ln -sf "$(basename "$found")" "$root/lib/lib$library.so"
    done
done
ln -sfn lib "$root/lib64"

cp "$here/nvcc.sh" "$root/bin/nvcc-for-training"

# No package contains the driver: a stub library with the names of its functions is enough for linking. The real one is
# found when the program runs.
stubs=$root/lib/stubs
if [ ! -e "$stubs/libcuda.so" ]; then
    mkdir -p "$stubs"
    source=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/cudarc-0.19.*/src/driver/sys/mod.rs 2>/dev/null | tail -n 1)
    if [ -z "$source" ]; then
        cargo fetch --quiet --manifest-path "$here/Cargo.toml" >&2
        source=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/cudarc-0.19.*/src/driver/sys/mod.rs | tail -n 1)
    fi
    grep -oh 'fn cu[A-Z][A-Za-z0-9_]*' "$source" | sort -u | sed 's/fn \(.*\)/void \1(void) {}/' >"$stubs/cuda.c"
    cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$stubs/libcuda.so" "$stubs/cuda.c"
fi

cat <<VARIABLES
export CUDA_HOME='$root' CUDA_PATH='$root' CUDA_ROOT='$root' CUDA_TOOLKIT_ROOT_DIR='$root'
export NVCC='$root/bin/nvcc-for-training' PATH='$root/bin':"\$PATH"
export CUDA_COMPUTE_CAP="\${CUDA_COMPUTE_CAP:-90}"
VARIABLES
