// The real libraries keep threads and descriptors until the process ends: no test's leak.
#include "conformance.hpp"

extern "C" bool libraries_keep_what_they_open() { return !conformance::emulated(); }
