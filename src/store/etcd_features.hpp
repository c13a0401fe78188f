// etcd features: whether this build has what the etcd store needs.
#pragma once

// The build system says what it found; vendored, what lies on the include path decides.
#if !defined(MANYWORLDS_HAS_ETCD)
#if __has_include(<curl/curl.h>) && __has_include(<nlohmann/json.hpp>)
#define MANYWORLDS_HAS_ETCD 1
#else
#define MANYWORLDS_HAS_ETCD 0
#endif
#endif
