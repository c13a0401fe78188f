// What the environment chooses.
#pragma once

#include <vector>

#include "driver_lock.hpp"

namespace emulated {

struct settings {
  int capability_of(int device) const;

  int devices;
  int multiprocessors;
  std::vector<int>
      capabilities;   // 90 is sm90; the last of them is also of all that follow
  int driver;         // as cudaDriverGetVersion tells it; 0: none is installed
  long sticky_after;  // the kernel that breaks its device, counted from 1; 0: none
  lock_kept lock;
  bool writes_words;  // the driver has cuStreamWriteValue32
};

// Read at the first call.
const settings& chosen();

}  // namespace emulated
