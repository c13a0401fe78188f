// Weights: a file of safetensors that is made from a seed.
#pragma once

#include <cstdint>
#include <string>

#include "model.hpp"

/// Writes weights that the seed decides, under the names that Llama's have.
void write_weights(const std::string& path, const model_config& of, std::uint64_t seed);
