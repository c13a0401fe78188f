// What the environment chooses.
#pragma once

#include <vector>

namespace emulated {

struct settings {
  int capability_of(int device) const;

  int devices;
  int multiprocessors;
  std::vector<int>
      capabilities;      // 90 is sm90; the last of them is also of all that follow
  int driver;            // as cudaDriverGetVersion tells it; 0: none is installed
  long sticky_after;     // the kernel that breaks its device, counted from 1; 0: none
  bool has_driver_lock;  // freeing keeps it while it waits for the device
  int connections;       // that streams of a device share; 0: each has its own
  bool writes_words;     // the driver has cuStreamWriteValue32
};

// Read at the first call.
const settings& chosen();

}  // namespace emulated
