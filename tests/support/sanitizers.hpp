// Which sanitizers this program is built with, for tests of what they change themselves.
#pragma once

namespace manyworlds::testing {

#if defined(__has_feature)
inline constexpr bool has_address_sanitizer = __has_feature(address_sanitizer);
inline constexpr bool has_thread_sanitizer = __has_feature(thread_sanitizer);
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool has_address_sanitizer = true;
#else
inline constexpr bool has_address_sanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool has_thread_sanitizer = true;
#else
inline constexpr bool has_thread_sanitizer = false;
#endif
#endif

}  // namespace manyworlds::testing
