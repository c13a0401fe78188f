// ResNet-18 for images of 32 x 32 and ten classes, with weights from a seed; and
// images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

using pixels = std::vector<float>;
inline constexpr std::size_t floats_in_image = 3 * 32 * 32;

/// Returns an image, the same for a number in every process: shapes, not noise.
pixels image(std::int64_t number);

/// The same network in every process. It is untrained: its class 3 means nothing, but
/// is computed as a trained network would.
class resnet {
 public:
  explicit resnet(std::uint64_t seed);
  resnet(const resnet&) = delete;
  ~resnet();

  /// Thread: any, one at a time.
  std::int64_t classify(const pixels& x);

 private:
  struct network;
  std::unique_ptr<network> network_;
};
