#include "element.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace nccl_emulation {

namespace {

// A type as it stands in memory and as it is counted with: small floats in float, signed
// integers as unsigned ones where that gives the same bits without overflow.
template <class Stored, class Counted>
struct plain {
  using stored = Stored;
  using counted = Counted;
  static counted load(stored s) { return static_cast<counted>(s); }
  static stored save(counted c) { return static_cast<stored>(c); }
};

struct half {
  using stored = __half;
  using counted = float;
  static float load(stored s) { return __half2float(s); }
  static stored save(float f) { return __float2half(f); }
};

struct bfloat {
  using stored = __nv_bfloat16;
  using counted = float;
  static float load(stored s) { return __bfloat162float(s); }
  static stored save(float f) { return __float2bfloat16(f); }
};

template <__nv_fp8_interpretation_t Kind>
struct fp8 {
  using stored = __nv_fp8_storage_t;
  using counted = float;
  static float load(stored s) {
    return __half2float(static_cast<__half>(__nv_cvt_fp8_to_halfraw(s, Kind)));
  }
  static stored save(float f) { return __nv_cvt_float_to_fp8(f, __NV_SATFINITE, Kind); }
};

template <class Body>
auto with_type(ncclDataType_t type, Body body) {
  switch (type) {
    case ncclInt8:
      return body(plain<std::int8_t, std::int64_t>{});
    case ncclUint8:
      return body(plain<std::uint8_t, std::int64_t>{});
    case ncclInt32:
      return body(plain<std::int32_t, std::int64_t>{});
    case ncclUint32:
      return body(plain<std::uint32_t, std::uint64_t>{});
    case ncclInt64:
      return body(plain<std::int64_t, std::int64_t>{});
    case ncclUint64:
      return body(plain<std::uint64_t, std::uint64_t>{});
    case ncclFloat16:
      return body(half{});
    case ncclFloat64:
      return body(plain<double, double>{});
    case ncclBfloat16:
      return body(bfloat{});
    case ncclFloat8e4m3:
      return body(fp8<__NV_E4M3>{});
    case ncclFloat8e5m2:
      return body(fp8<__NV_E5M2>{});
    default:
      return body(plain<float, float>{});
  }
}

// Wrapping around is what the device does; in C++ only unsigned numbers may.
template <class T, class Body>
T wrapping(T a, T b, Body body) {
  if constexpr (std::is_integral_v<T>) {
    using bits = std::make_unsigned_t<T>;
    return static_cast<T>(body(static_cast<bits>(a), static_cast<bits>(b)));
  } else {
    return body(a, b);
  }
}

template <class T>
T applied(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return wrapping(a, b, [](auto x, auto y) { return x * y; });
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
}

// Buffers of the application need not be aligned for the type here.
template <class Stored>
Stored at(const void* base, std::size_t i) {
  Stored value;
  std::memcpy(&value, static_cast<const char*>(base) + i * sizeof value, sizeof value);
  return value;
}

template <class Stored>
void put(void* base, std::size_t i, Stored value) {
  std::memcpy(static_cast<char*>(base) + i * sizeof value, &value, sizeof value);
}

template <class Type, class Body>
void each(void* into, std::size_t count, Body body) {
  using stored = typename Type::stored;
  for (std::size_t i = 0; i < count; ++i)
    put<stored>(into, i, Type::save(body(Type::load(at<stored>(into, i)), i)));
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  return with_type(type, [](auto as) { return sizeof(typename decltype(as)::stored); });
}

void combine(void* into, const void* from, std::size_t count, ncclDataType_t type,
             ncclRedOp_t op) {
  with_type(type, [&](auto as) {
    using kind = decltype(as);
    using stored = typename kind::stored;
    each<kind>(into, count, [&](auto value, std::size_t i) {
      return applied(value, kind::load(at<stored>(from, i)), op);
    });
  });
}

void divide(void* into, std::size_t count, ncclDataType_t type, int divisor) {
  with_type(type, [&](auto as) {
    using kind = decltype(as);
    using counted = typename kind::counted;
    each<kind>(into, count, [&](counted value, std::size_t) {
      return static_cast<counted>(value / static_cast<counted>(divisor));
    });
  });
}

void scale(void* into, std::size_t count, ncclDataType_t type, const void* scalar) {
  with_type(type, [&](auto as) {
    using kind = decltype(as);
    const auto factor = kind::load(at<typename kind::stored>(scalar, 0));
    each<kind>(into, count,
               [&](auto value, std::size_t) { return applied(value, factor, ncclProd); });
  });
}

}  // namespace nccl_emulation
