// Products of matrices in shared memory by a warp group of 128 threads (Hopper's `wgmma`; no other
// architecture has it).
//
// A tile in shared memory is rows of 64 elements of T (128 bytes) without gaps, aligned to 1,024
// bytes, with the 16-byte chunks of a row swizzled by it (`chunk ^ row % 8`). Four products of 16
// inputs each cover such a tile. The threads that wrote it have fenced (`fence_for_products`)
// before the barrier that precedes the products.
#pragma once

#ifndef EMULATOR

/// Changes the number of registers per thread of a warp group: some groups give up registers for
/// others. All threads of the group call it, once.
template <int COUNT>
__device__ __forceinline__ void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT>
__device__ __forceinline__ void give_up_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }

/// Makes visible to products what this thread has written to shared memory, and what
/// `copy_async_wait` has waited for.
__device__ __forceinline__ void fence_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Called before the first product of a group.
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/// The address of a tile as products take it, in units of 16 bytes. Only the offset within the
/// block counts: in a cluster the bits above it hold the block's rank. A fixed offset is then a
/// single addition, where converting an address takes four instructions per product.
struct Place {
  u32 piece;
  __device__ __forceinline__ Place(u32 piece) : piece(piece) {}
  __device__ __forceinline__ Place(const void* shared) : piece((shared_address(shared) & 0x3ffff) >> 4) {}
  __device__ __forceinline__ Place operator+(u32 bytes) const { return Place(piece + (bytes >> 4)); }
};

/// Descriptor of a tile with 1,024 bytes between groups of eight rows, and if it is read
/// transposed, `apart` bytes between groups of 64 columns.
__device__ __forceinline__ u64 tile_descriptor(Place tile, int apart = 16) {
  return (u64)(tile.piece + ((u32)apart >> 4 << 16)) | (u64)(1024 >> 4 | 1 << 30) << 32;
}

#if defined(T_BF16)
#define PRODUCT_TYPES ".f32.bf16.bf16 "
#else
#define PRODUCT_TYPES ".f32.f16.f16 "
#endif
// The sums of a product with this many columns, and their names in the instruction.
#define SUMS(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS_8 SUMS(0)
#define SUMS_16 SUMS_8, SUMS(4)
#define SUMS_24 SUMS_16, SUMS(8)
#define SUMS_32 SUMS_24, SUMS(12)
#define SUMS_40 SUMS_32, SUMS(16)
#define SUMS_48 SUMS_40, SUMS(20)
#define SUMS_56 SUMS_48, SUMS(24)
#define SUMS_64 SUMS_56, SUMS(28)
#define SUMS_72 SUMS_64, SUMS(32)
#define SUMS_80 SUMS_72, SUMS(36)
#define SUMS_88 SUMS_80, SUMS(40)
#define SUMS_96 SUMS_88, SUMS(44)
#define SUMS_104 SUMS_96, SUMS(48)
#define SUMS_112 SUMS_104, SUMS(52)
#define SUMS_120 SUMS_112, SUMS(56)
#define SUMS_128 SUMS_120, SUMS(60)
#define SUMS_136 SUMS_128, SUMS(64)
#define SUMS_144 SUMS_136, SUMS(68)
#define SUMS_152 SUMS_144, SUMS(72)
#define SUMS_160 SUMS_152, SUMS(76)
#define SUMS_168 SUMS_160, SUMS(80)
#define SUMS_176 SUMS_168, SUMS(84)
#define SUMS_184 SUMS_176, SUMS(88)
#define SUMS_192 SUMS_184, SUMS(92)
#define SUMS_200 SUMS_192, SUMS(96)
#define SUMS_208 SUMS_200, SUMS(100)
#define SUMS_216 SUMS_208, SUMS(104)
#define SUMS_224 SUMS_216, SUMS(108)
#define NAMES_8 "%0, %1, %2, %3"
#define NAMES_16 NAMES_8 ", %4, %5, %6, %7"
#define NAMES_24 NAMES_16 ", %8, %9, %10, %11"
#define NAMES_32 NAMES_24 ", %12, %13, %14, %15"
#define NAMES_40 NAMES_32 ", %16, %17, %18, %19"
#define NAMES_48 NAMES_40 ", %20, %21, %22, %23"
#define NAMES_56 NAMES_48 ", %24, %25, %26, %27"
#define NAMES_64 NAMES_56 ", %28, %29, %30, %31"
#define NAMES_72 NAMES_64 ", %32, %33, %34, %35"
#define NAMES_80 NAMES_72 ", %36, %37, %38, %39"
#define NAMES_88 NAMES_80 ", %40, %41, %42, %43"
#define NAMES_96 NAMES_88 ", %44, %45, %46, %47"
#define NAMES_104 NAMES_96 ", %48, %49, %50, %51"
#define NAMES_112 NAMES_104 ", %52, %53, %54, %55"
#define NAMES_120 NAMES_112 ", %56, %57, %58, %59"
#define NAMES_128 NAMES_120 ", %60, %61, %62, %63"
#define NAMES_136 NAMES_128 ", %64, %65, %66, %67"
#define NAMES_144 NAMES_136 ", %68, %69, %70, %71"
#define NAMES_152 NAMES_144 ", %72, %73, %74, %75"
#define NAMES_160 NAMES_152 ", %76, %77, %78, %79"
#define NAMES_168 NAMES_160 ", %80, %81, %82, %83"
#define NAMES_176 NAMES_168 ", %84, %85, %86, %87"
#define NAMES_184 NAMES_176 ", %88, %89, %90, %91"
#define NAMES_192 NAMES_184 ", %92, %93, %94, %95"
#define NAMES_200 NAMES_192 ", %96, %97, %98, %99"
#define NAMES_208 NAMES_200 ", %100, %101, %102, %103"
#define NAMES_216 NAMES_208 ", %104, %105, %106, %107"
#define NAMES_224 NAMES_216 ", %108, %109, %110, %111"
/// The instruction for a number of columns; `first` and `second` are the operand numbers of its
/// tiles, after the sums.
#define PRODUCT(columns, first, second)                                                                                 \
  asm volatile("{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #columns               \
               "k16" PRODUCT_TYPES "{" NAMES_##columns "}, %" #first ", %" #second ", adds, 1, 1, 0, 0;\n}"             \
               : SUMS_##columns                                                                                         \
               : "l"(tile_descriptor(left)), "l"(tile_descriptor(right)))

/// Starts sum += left · rightᵀ: left is 64 rows and right COLUMNS rows of a tile, both with 16
/// inputs from the address on. Lane l of warp w of the group holds, for every 8 columns j, row 16
/// w + l / 4 (sum[4 j] and the next) and row 16 w + l / 4 + 8 (the two after), each at columns 8
/// j + 2 (l % 4) and the next.
template <int COLUMNS>
__device__ __forceinline__ void product_start(float (&sum)[COLUMNS / 2], Place left, Place right) {
  static_assert(COLUMNS == 8 || COLUMNS == 16 || COLUMNS == 24 || COLUMNS == 32 || COLUMNS == 64 || COLUMNS == 96 ||
                    COLUMNS == 112 || COLUMNS == 128 || COLUMNS == 192 || COLUMNS == 224,
                "others are not needed");
  if constexpr (COLUMNS == 8) PRODUCT(8, 4, 5);
  if constexpr (COLUMNS == 16) PRODUCT(16, 8, 9);
  if constexpr (COLUMNS == 24) PRODUCT(24, 12, 13);
  if constexpr (COLUMNS == 32) PRODUCT(32, 16, 17);
  if constexpr (COLUMNS == 64) PRODUCT(64, 32, 33);
  if constexpr (COLUMNS == 96) PRODUCT(96, 48, 49);
  if constexpr (COLUMNS == 112) PRODUCT(112, 56, 57);
  if constexpr (COLUMNS == 128) PRODUCT(128, 64, 65);
  if constexpr (COLUMNS == 192) PRODUCT(192, 96, 97);
  if constexpr (COLUMNS == 224) PRODUCT(224, 112, 113);
}

/// The instruction for FP8 numbers, with 32 inputs; `third` is the operand number of `adds`, after
/// those of the tiles.
#define PRODUCT_OF_NUMBERS(columns, first, second, third)                                                               \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %" #third ", 0;\nwgmma.mma_async.sync.aligned.m64n" #columns     \
               "k32.f32.e4m3.e4m3 {" NAMES_##columns "}, %" #first ", %" #second ", adds, 1, 1;\n}"                     \
               : SUMS_##columns                                                                                         \
               : "l"(tile_descriptor(left)), "l"(tile_descriptor(right)), "r"(adds))

/// As `product_start` for tiles of rows of 128 FP8 numbers (e4m3): 32 inputs from the addresses on.
/// If `adds` is 0 the sum starts at 0. These sums have fewer bits than floats: they are to be
/// short.
template <int COLUMNS>
__device__ __forceinline__ void product_of_numbers_start(float (&sum)[COLUMNS / 2], Place left, Place right, int adds) {
  static_assert(COLUMNS <= 32 ? COLUMNS % 8 == 0 : COLUMNS == 64 || COLUMNS == 96 || COLUMNS == 112 || COLUMNS == 128,
                "others are not needed");
  if constexpr (COLUMNS == 8) PRODUCT_OF_NUMBERS(8, 4, 5, 6);
  if constexpr (COLUMNS == 16) PRODUCT_OF_NUMBERS(16, 8, 9, 10);
  if constexpr (COLUMNS == 24) PRODUCT_OF_NUMBERS(24, 12, 13, 14);
  if constexpr (COLUMNS == 32) PRODUCT_OF_NUMBERS(32, 16, 17, 18);
  if constexpr (COLUMNS == 64) PRODUCT_OF_NUMBERS(64, 32, 33, 34);
  if constexpr (COLUMNS == 96) PRODUCT_OF_NUMBERS(96, 48, 49, 50);
  if constexpr (COLUMNS == 112) PRODUCT_OF_NUMBERS(112, 56, 57, 58);
  if constexpr (COLUMNS == 128) PRODUCT_OF_NUMBERS(128, 64, 65, 66);
}

/// The instruction with a left factor from registers; `a` to `d` are its operand numbers, `tile`
/// that of the right factor, given by `descriptor`, and `turned` is 1 if that is transposed.
#define PRODUCT_OF_REGISTERS(columns, a, b, c, d, tile, turned, descriptor)                                                                 \
  asm volatile("{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" #columns               \
               "k16" PRODUCT_TYPES "{" NAMES_##columns "}, {%" #a ", %" #b ", %" #c ", %" #d "}, %" #tile               \
               ", adds, 1, 1, " #turned ";\n}"                                                                          \
               : SUMS_##columns                                                                                         \
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(descriptor))

/// Starts sum += left · right: left is 64 rows of 16 inputs, laid out in lanes as an operand of
/// `mma_16816`; right is 16 rows of a tile, one per input, with 64 columns of the result each;
/// further columns are in tiles `apart` bytes later. Sums as in `product_start`.
template <int COLUMNS>
__device__ __forceinline__ void product_of_registers_start(float (&sum)[COLUMNS / 2], const u32 (&left)[4], Place right,
                                                           int apart) {
  static_assert(COLUMNS == 64 || COLUMNS == 128, "others are not needed");
  if constexpr (COLUMNS == 64) PRODUCT_OF_REGISTERS(64, 32, 33, 34, 35, 36, 1, tile_descriptor(right, apart));
  if constexpr (COLUMNS == 128) PRODUCT_OF_REGISTERS(128, 64, 65, 66, 67, 68, 1, tile_descriptor(right, apart));
}

/// Starts sum += left · rightᵀ with the same left factor, and right as in `product_start`.
template <int COLUMNS>
__device__ __forceinline__ void product_with_registers_start(float (&sum)[COLUMNS / 2], const u32 (&left)[4], Place right) {
  static_assert(COLUMNS == 64 || COLUMNS == 96 || COLUMNS == 128, "others are not needed");
  if constexpr (COLUMNS == 96) PRODUCT_OF_REGISTERS(96, 48, 49, 50, 51, 52, 0, tile_descriptor(right));
  if constexpr (COLUMNS == 64) PRODUCT_OF_REGISTERS(64, 32, 33, 34, 35, 36, 0, tile_descriptor(right));
  if constexpr (COLUMNS == 128) PRODUCT_OF_REGISTERS(128, 64, 65, 66, 67, 68, 0, tile_descriptor(right));
}
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits for all products except those of the last PENDING committed groups; the sums of these must
/// not be used yet.
template <int PENDING>
__device__ __forceinline__ void products_wait_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/// The same for sums that are not of the pending products; their uses are kept after the wait.
template <int PENDING, int COUNT>
__device__ __forceinline__ void products_wait_but(float (&sum)[COUNT]) {
  products_wait_but<PENDING>();
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sum[i])::"memory");
}

/// Waits for all products that have been started.
template <int COUNT>
__device__ __forceinline__ void products_wait(float (&sum)[COUNT]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  // Keeps uses of the sums after the wait.
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sum[i])::"memory");
}

#endif  // EMULATOR
