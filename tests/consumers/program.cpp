// What every consumer builds: proves that headers and library fit together.
#include <manyworlds/version.hpp>

#include <cstdio>

namespace mw = manyworlds;

int main() {
  const auto linked = mw::linked_version();
  std::printf("manyworlds %d.%d.%d\n", linked.major_part, linked.minor_part,
              linked.patch_part);
  return linked == mw::header_version ? 0 : 1;
}
