// What the environment chooses.
#pragma once

namespace emulated {

struct settings {
  int devices;
  int multiprocessors;
  int driver;         // as cudaDriverGetVersion tells it; 0: none is installed
  long sticky_after;  // the kernel that breaks its device, counted from 1; 0: none
};

// Read at the first call.
const settings& chosen();

}  // namespace emulated
