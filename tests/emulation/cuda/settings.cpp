#include "settings.hpp"

#include <cstdlib>

namespace emulated {
namespace {

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtol(text, nullptr, 10);
}

}  // namespace

const settings& chosen() {
  static const settings read{
      static_cast<int>(number("EMULATED_CUDA_DEVICES", 8)),
      static_cast<int>(number("EMULATED_CUDA_SMS", 132)),
      static_cast<int>(number("EMULATED_CUDA_DRIVER", 13000)),
      number("EMULATED_CUDA_STICKY_AFTER", 0),
  };
  return read;
}

}  // namespace emulated
