// The program of the workers of tests.
#include <cstdlib>

#include "session_functions.hpp"

int main(int argc, char** argv) {
  const int status =
      manyworlds::worker_main(manyworlds::spmd_tests::test_functions(), argc, argv);
  // Without the search for leaks: a session kills what takes a second to end, and that
  // search leaves a process behind when it is killed. Threads are searched.
  std::_Exit(status);
}
