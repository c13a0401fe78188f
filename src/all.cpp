// The whole library as one file: vendoring is the include folder, this file, and the
// system libraries its features use (-luring, -lcrypto).
// tests/checks/all_cpp.py --write makes the list.
#define FMT_HEADER_ONLY

#include "version.cpp"
