// Model: its sizes, and the functions by which a controller runs it on workers. This is
// all that the two share.
#pragma once

#include <manyworlds/mw.hpp>
#include <manyworlds/spmd.hpp>
#include <string>
#include <vector>

/// The sizes of a Llama-style decoder; it travels as its bytes.
struct model_config {
  int tokens = 256;  ///< in the vocabulary
  int width = 64;    ///< of the activations
  int inner = 192;   ///< of the feed-forward network
  int layers = 4;
  int heads = 8;      ///< of queries
  int kv_heads = 4;   ///< of keys and values, each for two heads of queries
  int longest = 256;  ///< positions in a cache

  [[nodiscard]] constexpr int head_width() const noexcept { return width / heads; }
};
template <>
inline constexpr bool mw::is_plain_record<model_config> = true;

// These live on workers. A controller has a `dref` on each.
struct part;
struct kv_cache;

/// Reads this worker's part of the weights out of a file of safetensors. The workers are
/// divided into as many stages as said, which share the layers.
inline constexpr mw::remote_function<part(model_config, std::string, int)> load{
    "load", mw::alone};

/// Makes an empty cache of keys and values for a part.
inline constexpr mw::remote_function<kv_cache(const part&)> make_cache{"make_cache",
                                                                       mw::alone};

/// Runs the layers of the first stage on tokens that stand at this position and behind,
/// and keeps their keys and values. Gives activations; in the last stage the logits of
/// the token that comes next.
inline constexpr mw::remote_function<mw::tensor(const part&, kv_cache&, std::vector<int>,
                                                int)>
    first_stage{"first_stage"};
/// Does the same in a later stage, from activations.
inline constexpr mw::remote_function<mw::tensor(const part&, kv_cache&, const mw::tensor&,
                                                int)>
    next_stage{"next_stage"};
/// The first half of a mesh hands activations of that shape to the other half, which
/// gives them.
inline constexpr mw::remote_function<mw::tensor(const mw::tensor&, mw::shape)> hand_on{
    "hand_on"};
