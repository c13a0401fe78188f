// What the address sanitizer is told of programs that load plugins.

// A plugin with the static library in it has, as the program has, the vtables of what is
// thrown across its border. To look for those of unequal size is no way out: it reads
// what was unloaded.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_odr_violation=0"; }
