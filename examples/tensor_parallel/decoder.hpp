// Decoder: the arithmetic of a Llama-style model. A worker runs it on its part and adds
// up with its peers; the reference is the same with one part that is everything.
#pragma once

#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <span>
#include <string>
#include <vector>

#include "model.hpp"

/// One worker's part of a layer. Heads, and the inner width of the feed-forward network,
/// are divided among the workers of a stage: rows of what leads there, columns of what
/// leads back.
struct layer {
  mw::tensor attention_norm, query, key, value, output;
  mw::tensor mlp_norm, gate, up, down;
};

/// Which part of a model one worker has.
struct part_place {
  int stage = 0;
  int stages = 1;
  int rank = 0;  ///< among the workers of its stage
  int size = 1;

  [[nodiscard]] constexpr bool is_first() const noexcept { return stage == 0; }
  [[nodiscard]] constexpr bool is_last() const noexcept { return stage + 1 == stages; }
};

/// One worker's part of a model.
struct part {
  model_config of;
  part_place at;
  mw::tensor embedding;  ///< all of it, in the first stage
  std::vector<layer> layers;
  mw::tensor norm, head;  ///< of the head this worker's tokens, in the last stage
};

/// The keys and values of each layer of a part, a row for each position.
struct kv_cache {
  std::vector<mw::tensor> keys, values;
};

/// Reads a part out of a file of safetensors, to where the worker's tensors lie; into
/// host memory without one. Errors: those of `weight_files`.
mw::task<part> read_part(model_config of, std::string path, part_place at,
                         const mw::worker* me);

/// Makes an empty cache for it.
kv_cache empty_cache(const part& p);

/// Returns the activations of tokens, a row for each. Errors: std::invalid_argument for
/// one that is not in the vocabulary.
mw::task<mw::tensor> embed(const part& p, std::vector<int> tokens);

/// Runs a part on activations of positions from `at` on, and keeps their keys and values:
/// what stood there before is overwritten, so that a step may be made again. Gives
/// activations, and the logits behind the last row where the part is of the last stage.
/// `me` is one of the workers of the same stage; null if it has one part.
///
/// Errors: those of collectives; std::length_error beyond the cache.
mw::task<mw::tensor> run_part(const part& p, kv_cache& cache, mw::tensor x, int at,
                              mw::worker* me);
