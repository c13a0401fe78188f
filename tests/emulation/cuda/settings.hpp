// What the environment chooses.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

namespace emulated {

// What this library is: the headers are those of CUDA 13, the older one answers as 12.4.
#ifdef EMULATED_CUDA_OLDER
inline constexpr int runtime_version = 12040;
#else
inline constexpr int runtime_version = CUDART_VERSION;
#endif

struct settings {
  int capability_of(int device) const;

  int devices;
  int multiprocessors;
  std::vector<int>
      capabilities;       // 90 is sm90; the last of them is also of all that follow
  int driver;             // as cudaDriverGetVersion tells it; 0: none is installed
  long sticky_after;      // the kernel that breaks its device, counted from 1; 0: none
  bool has_driver_lock;   // freeing keeps it while it waits for the device
  bool syncs_implicitly;  // allocating waits for the device, as freeing does
  bool loads_lazily;      // the first launch of a kernel waits for the device
  bool idle_hides_error;  // only streams that had work show that the device broke
  bool reaches_peers;     // devices reach each other's memory
  int slice_ms;           // of processes that share a device; 0: they run side by side
  int connections;        // that streams of a device share; 0: each has its own
  bool writes_words;      // the driver has cuStreamWriteValue32
};

// Read at the first call.
const settings& chosen();

}  // namespace emulated
