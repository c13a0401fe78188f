#include "settings.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace emulated {
namespace {

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtol(text, nullptr, 10);
}

bool is(const char* name, std::string_view wanted) {
  const char* text = std::getenv(name);
  return text != nullptr && text == wanted;
}

std::vector<int> numbers(const char* name, int otherwise) {
  std::vector<int> all;
  const char* text = std::getenv(name);
  while (text != nullptr && *text != '\0') {
    char* end = nullptr;
    all.push_back(static_cast<int>(std::strtol(text, &end, 10)));
    text = *end == ',' ? end + 1 : nullptr;
  }
  if (all.empty()) all.push_back(otherwise);
  return all;
}

}  // namespace

int settings::capability_of(int device) const {
  const auto last = capabilities.size() - 1;
  return capabilities[std::min(static_cast<std::size_t>(device), last)];
}

const settings& chosen() {
  static const settings read{
      static_cast<int>(number("EMULATED_CUDA_DEVICES", 8)),
      static_cast<int>(number("EMULATED_CUDA_SMS", 132)),
      numbers("EMULATED_CUDA_CAPABILITY", 90),
      static_cast<int>(number("EMULATED_CUDA_DRIVER", runtime_version)),
      number("EMULATED_CUDA_STICKY_AFTER", 0),
      number("EMULATED_CUDA_DRIVER_LOCK", 0) != 0,
      number("EMULATED_CUDA_IMPLICIT_SYNC", 0) != 0,
      number("EMULATED_CUDA_LAZY_LOADING", 0) != 0 && !is("CUDA_MODULE_LOADING", "EAGER"),
      is("EMULATED_CUDA_STICKY_SHOWN", "busy"),
      number("EMULATED_CUDA_PEER_ACCESS", 1) != 0,
      static_cast<int>(number("EMULATED_CUDA_SLICES", 0)),
      static_cast<int>(number("EMULATED_CUDA_CONNECTIONS", 0)),
      number("EMULATED_CUDA_WORDS", 1) != 0,
  };
  return read;
}

}  // namespace emulated
