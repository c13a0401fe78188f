// Config: what this build of the library can do, and how it is exported.
#pragma once

// The failing include ends the compilation, so that the error is all that is printed.
#if !defined(__cpp_exceptions)
#error "manyworlds needs exceptions: compile without -fno-exceptions"
#include "manyworlds needs exceptions, see above"
#elif __cplusplus < 202002L
#error "manyworlds needs C++20: compile with -std=c++20 or later"
#include "manyworlds needs C++20, see above"
#endif

#define MANYWORLDS_VERSION_MAJOR 0
#define MANYWORLDS_VERSION_MINOR 1
#define MANYWORLDS_VERSION_PATCH 0
#define MANYWORLDS_VERSION_STRING "0.1.0"

// The build system says what it found. Vendored without one (an include path and
// src/all.cpp), what lies on the include path decides.
#if !defined(MANYWORLDS_HAS_IO_URING)
#if __has_include(<liburing.h>)
#define MANYWORLDS_HAS_IO_URING 1
#else
#define MANYWORLDS_HAS_IO_URING 0
#endif
#endif

#if !defined(MANYWORLDS_HAS_SECRET)
#if __has_include(<openssl/hmac.h>)
#define MANYWORLDS_HAS_SECRET 1
#else
#define MANYWORLDS_HAS_SECRET 0
#endif
#endif

#if !defined(MANYWORLDS_HAS_NCCL)
#if __has_include(<cuda_runtime_api.h>) && __has_include(<nccl.h>)
#define MANYWORLDS_HAS_NCCL 1
#else
#define MANYWORLDS_HAS_NCCL 0
#endif
#endif

// Exports types that are thrown out of a shared library: a program that is compiled
// with hidden visibility could not catch them otherwise.
#define MANYWORLDS_EXPORT __attribute__((visibility("default")))

// Marks what does nothing unless it is awaited. A compiler that warns of it prints the
// text.
#define MANYWORLDS_MUST_AWAIT \
  [[nodiscard(                \
      "nothing is done before it is awaited: co_await it, spawn it, or start a task")]]
