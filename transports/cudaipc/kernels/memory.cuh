// memory.cuh: words of the caller's memory, however it is aligned: to the size of its element at
// least. Memory that is aligned as the kernel would like takes the short way; the rest is apart,
// not inlined, because it would be most of every kernel.
#pragma once

#include "device.cuh"

namespace shunt {

// A word piece by piece; bytes past the end read as zero. P is what the memory
// is aligned to at least: bytes are mostly those of elements of two.
template <class P>
__device__ __noinline__ u64 gather_word(const char *p, int64_t room) {
  if constexpr (sizeof(P) == 1)
    if (((reinterpret_cast<u64>(p) | u64(room < 8 ? room : 0)) & 1) == 0) return gather_word<uint16_t>(p, room);
  u64 word = 0;
#pragma unroll
  for (int i = 0; i < int(8 / sizeof(P)); i++)
    if (int64_t((i + 1) * sizeof(P)) <= room)
      word |= u64(*reinterpret_cast<const P *>(p + i * sizeof(P))) << (i * sizeof(P) * 8);
  return word;
}

template <class P>
__device__ __noinline__ void scatter_word(char *p, int64_t room, u64 word) {
  if constexpr (sizeof(P) == 1)
    if (((reinterpret_cast<u64>(p) | u64(room < 8 ? room : 0)) & 1) == 0) return scatter_word<uint16_t>(p, room, word);
#pragma unroll
  for (int i = 0; i < int(8 / sizeof(P)); i++)
    if (int64_t((i + 1) * sizeof(P)) <= room)
      *reinterpret_cast<P *>(p + i * sizeof(P)) = P(word >> (i * sizeof(P) * 8));
}

// Unsigned integers by size, to move elements with.
template <int kBytes>
struct Bits;
template <>
struct Bits<1> {
  typedef uint8_t type;
};
template <>
struct Bits<2> {
  typedef uint16_t type;
};
template <>
struct Bits<4> {
  typedef uint32_t type;
};
template <>
struct Bits<8> {
  typedef uint64_t type;
};

// The word at a byte offset of a buffer of the given length. T is the element.
// Four-byte alignment is served in line too, for the end of a message; the calls
// cost half a microsecond, most of it fetching code.
template <class T>
__device__ __forceinline__ u64 load_word(const char *base, int64_t offset, int64_t length) {
  const char *p = base + offset;
  const int64_t room = length - offset;
  if ((reinterpret_cast<u64>(p) & 7) == 0 && room >= 8) return *reinterpret_cast<const u64 *>(p);
  if (room <= 0) return 0;
  if (sizeof(T) >= 4 || ((reinterpret_cast<u64>(p) | u64(room)) & 3) == 0) {
    const u32 *q = reinterpret_cast<const u32 *>(p);
    const u64 low = q[0];
    return room >= 8 ? low | u64(q[1]) << 32 : low;
  }
  return gather_word<typename Bits<sizeof(T)>::type>(p, room);
}

template <class T>
__device__ __forceinline__ void store_word(char *base, int64_t offset, int64_t length, u64 word) {
  char *p = base + offset;
  const int64_t room = length - offset;
  if ((reinterpret_cast<u64>(p) & 7) == 0 && room >= 8) {
    *reinterpret_cast<u64 *>(p) = word;
  } else if (room <= 0) {
    return;
  } else if (sizeof(T) >= 4 || ((reinterpret_cast<u64>(p) | u64(room)) & 3) == 0) {
    u32 *q = reinterpret_cast<u32 *>(p);
    q[0] = u32(word);
    if (room >= 8) q[1] = u32(word >> 32);
  } else {
    scatter_word<typename Bits<sizeof(T)>::type>(p, room, word);
  }
}

// Two words, at an offset that is a multiple of 16.
template <class T>
__device__ __noinline__ word2 gather_words(const char *base, int64_t offset, int64_t length) {
  return word2{load_word<T>(base, offset, length), load_word<T>(base, offset + 8, length)};
}

template <class T>
__device__ __noinline__ void scatter_words(char *base, int64_t offset, int64_t length, word2 w) {
  store_word<T>(base, offset, length, w.x);
  store_word<T>(base, offset + 8, length, w.y);
}

template <class T>
__device__ __forceinline__ word2 load_words(const char *base, int64_t offset, int64_t length) {
  if ((reinterpret_cast<u64>(base) & 15) == 0 && offset + 16 <= length)
    return *reinterpret_cast<const word2 *>(base + offset);
  return gather_words<T>(base, offset, length);
}

template <class T>
__device__ __forceinline__ void store_words(char *base, int64_t offset, int64_t length, word2 w) {
  if ((reinterpret_cast<u64>(base) & 15) == 0 && offset + 16 <= length)
    *reinterpret_cast<word2 *>(base + offset) = w;
  else
    scatter_words<T>(base, offset, length, w);
}

// A vector of memory that is not aligned is put together of the two that hold it, if those
// lie in the memory: what is stored is then stored in whole vectors, as a store of less
// takes as much of a link.

// Sixteen bytes, from byte `shift` of the first of two vectors on; shift is 0 to 15.
__device__ __forceinline__ word2 straddle(word2 first, word2 second, int shift) {
  const bool far = shift >= 8, near = shift & 4;
  const u64 a = far ? first.y : first.x, b = far ? second.x : first.y, c = far ? second.y : second.x;
  const u32 w[6] = {u32(a), u32(a >> 32), u32(b), u32(b >> 32), u32(c), u32(c >> 32)};
  u32 v[5];
#pragma unroll
  for (int i = 0; i < 5; i++) v[i] = near ? w[i + 1] : w[i];
  auto word = [&](int i) { return u64(u32((u64(v[i + 1]) << 32 | v[i]) >> (shift % 4 * 8))); };
  return word2{word(1) << 32 | word(0), word(3) << 32 | word(2)};
}

// The sixteen bytes at an address, of which the vectors that hold them may be read. No branch,
// so that several are under way.
__device__ __forceinline__ word2 load_straddling(u64 address) {
  const word2 *p = reinterpret_cast<const word2 *>(address & ~u64(15));
  const int shift = int(address & 15);
  return straddle(p[0], p[shift == 0 ? 0 : 1], shift);
}

// A range of bytes that is stored at `to`: whole vectors in the middle, and two ends. Long
// ranges have middles that begin a line, of which a link carries a part no faster. If
// vectors straddle, the middle is so far from the ends that all that is loaded for it lies
// in the range.
struct Middle {
  static constexpr int kPieces = 11;  // as many pieces of up to 16 bytes have the ends, at most
  int64_t begin, end, bytes;
  __device__ __forceinline__ Middle(u64 to, bool straddles, int64_t bytes) : bytes(bytes) {
    const int64_t apart = straddles ? 16 : 0, unit = bytes < 4096 ? 16 : 128;
    begin = int64_t(-to) & (unit - 1);
    if (begin < apart) begin += unit;
    end = begin + (bytes - begin - apart) / 16 * 16;
    if (end <= begin) begin = end = 0;
  }
  __device__ __forceinline__ int64_t length() const { return end - begin; }
  // Byte number i of the ends, of `outside`.
  __device__ __forceinline__ int64_t outside() const { return bytes - length(); }
  __device__ __forceinline__ int64_t at(int64_t i) const { return i < begin ? i : i + length(); }
  // Piece number i; of no bytes if there are fewer.
  __device__ __forceinline__ int64_t piece(int i) const {
    const int before = int(begin + 15) / 16;
    return i < before ? i * 16 : end + (i - before) * 16;
  }
  __device__ __forceinline__ int64_t room(int64_t piece) const { return (piece < begin ? begin : bytes) - piece; }
};

}  // namespace shunt
