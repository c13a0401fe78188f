// Raw copy: copies for the raw limits, as fast wherever both places stand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace mwbench {

/// Copies in pieces that memcpy copies by vectors. From 4 KiB on memcpy is the string
/// instruction, which takes ten times as long on Zen 3 to a place just behind a page
/// (sourceware bug 30994), as memory of malloc is: that would be no limit.
inline void copy_in_pieces(void* into, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t piece = 1024;
  auto* to = static_cast<std::byte*>(into);
  const auto* source = static_cast<const std::byte*>(from);
  for (std::size_t done = 0; done < bytes; done += piece) {
    std::memcpy(to + done, source + done, std::min(piece, bytes - done));
  }
}

}  // namespace mwbench
