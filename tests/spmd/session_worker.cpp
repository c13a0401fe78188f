// The program of the workers of tests.
#include "session_functions.hpp"

int main(int argc, char** argv) {
  return manyworlds::worker_main(manyworlds::spmd_tests::test_functions(), argc, argv);
}
