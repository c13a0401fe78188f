// The only file that uses libtorch.
#include "model.hpp"

#include <torch/torch.h>

namespace nn = torch::nn;

namespace {

constexpr std::int64_t classes = 10, side = 32;

nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size,
                       std::int64_t stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

/// Normalizes by the statistics of the last images it was trained on.
nn::BatchNorm2d norm(std::int64_t width) {
  return nn::BatchNorm2d(nn::BatchNorm2dOptions(width).momentum(1));
}

/// Two convolutions; their input is added to their output.
struct block : nn::Module {
  block(std::int64_t in, std::int64_t out, std::int64_t stride)
      : body(convolution(in, out, 3, stride), norm(out), nn::ReLU(),
             convolution(out, out, 3, 1), norm(out)) {
    register_module("body", body);
    if (stride == 1 && in == out) return;
    shortcut->push_back(convolution(in, out, 1, stride));
    shortcut->push_back(norm(out));
    register_module("shortcut", shortcut);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto around = shortcut->is_empty() ? x : shortcut->forward(x);
    return torch::relu(body->forward(x) + around);
  }
  nn::Sequential body, shortcut;
};

torch::Tensor image_tensor(std::int64_t number) {
  auto random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(number));
  const auto coarse = torch::randn({1, 3, 4, 4}, random);
  return nn::functional::interpolate(coarse, nn::functional::InterpolateFuncOptions()
                                                 .size(std::vector{side, side})
                                                 .mode(torch::kBilinear)
                                                 .align_corners(false))
      .contiguous();
}

}  // namespace

struct resnet::network {
  nn::Sequential layers;
};

resnet::resnet(std::uint64_t seed) : network_(std::make_unique<network>()) {
  torch::set_num_threads(1);
  torch::manual_seed(seed);
  const torch::NoGradGuard no_gradients;
  nn::Sequential& layers = network_->layers;
  layers = nn::Sequential(convolution(3, 64, 3, 1), norm(64), nn::ReLU());
  std::int64_t width = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    layers->push_back(block(width, out, out > 64 ? 2 : 1));
    layers->push_back(block(out, out, 1));
    width = out;
  }
  nn::Linear last(width, classes);
  layers->push_back(nn::AdaptiveAvgPool2d(1));
  layers->push_back(nn::Flatten());
  layers->push_back(last);
  // Take the statistics from a few images; otherwise all look alike to random weights.
  std::vector<torch::Tensor> some;
  for (std::int64_t i = 0; i < 4; ++i) some.push_back(image_tensor(1000 + i));
  layers->forward(torch::cat(some));
  layers->eval();
  last->bias -= layers->forward(torch::cat(some)).mean(0);
}

resnet::~resnet() = default;

std::int64_t resnet::classify(const pixels& x) {
  const torch::NoGradGuard no_gradients;
  auto* const first = const_cast<float*>(x.data());  // it is not written
  const auto as_tensor = torch::from_blob(first, {1, 3, side, side});
  return network_->layers->forward(as_tensor).argmax(1).item<std::int64_t>();
}

pixels image(std::int64_t number) {
  const auto x = image_tensor(number);
  return pixels(x.data_ptr<float>(), x.data_ptr<float>() + x.numel());
}
