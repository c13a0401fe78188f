#include "decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace {

constexpr float norm_epsilon = 1e-5f;
constexpr float rotation_base = 10000;

std::size_t length_of(const mw::tensor& t, std::size_t dimension) {
  return static_cast<std::size_t>(t.shape()[dimension]);
}

std::span<float> row(mw::tensor& t, std::size_t i) {
  const std::size_t length = length_of(t, 1);
  return t.as<float>().subspan(i * length, length);
}

std::span<const float> row(const mw::tensor& t, std::size_t i) {
  const std::size_t length = length_of(t, 1);
  return t.as<float>().subspan(i * length, length);
}

float dot(std::span<const float> a, std::span<const float> b) {
  float sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Returns each row of x times each row of w.
mw::tensor product(const mw::tensor& x, const mw::tensor& w) {
  const std::size_t rows = length_of(x, 0), columns = length_of(w, 0);
  mw::tensor y({rows, columns}, mw::dtype::float32);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) row(y, r)[c] = dot(row(x, r), row(w, c));
  }
  return y;
}

void add(mw::tensor& x, const mw::tensor& y) {
  const std::span<float> sum = x.as<float>();
  const std::span<const float> more = y.as<float>();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

/// RMSNorm of each row.
mw::tensor normalized(const mw::tensor& x, const mw::tensor& factors) {
  mw::tensor y(x.shape(), mw::dtype::float32);
  const std::span<const float> by = factors.as<float>();
  for (std::size_t r = 0; r < length_of(x, 0); ++r) {
    const std::span<const float> from = row(x, r);
    const float mean = dot(from, from) / static_cast<float>(from.size());
    const float scale = 1 / std::sqrt(mean + norm_epsilon);
    for (std::size_t i = 0; i < from.size(); ++i) row(y, r)[i] = from[i] * scale * by[i];
  }
  return y;
}

/// RoPE: turns each pair of a head's halves by an angle that grows with the position.
void rotate(mw::tensor& x, std::size_t head_width, int at) {
  const std::size_t half = head_width / 2;
  for (std::size_t r = 0; r < length_of(x, 0); ++r) {
    const std::span<float> all = row(x, r);
    for (std::size_t i = 0; i < half; ++i) {
      const float speed =
          std::pow(rotation_base, -static_cast<float>(i) / static_cast<float>(half));
      const float angle = static_cast<float>(at + static_cast<int>(r)) * speed;
      const float c = std::cos(angle), s = std::sin(angle);
      for (std::size_t head = 0; head < all.size(); head += head_width) {
        const float a = all[head + i], b = all[head + half + i];
        all[head + i] = a * c - b * s;
        all[head + half + i] = b * c + a * s;
      }
    }
  }
}

/// One head of one position: looks at the keys of `seen` positions, and adds up their
/// values by how near the keys are to the query.
void attend(std::span<const float> query, const mw::tensor& keys,
            const mw::tensor& values, std::size_t kv_at, std::size_t seen,
            std::span<float> out) {
  const float scale = 1 / std::sqrt(static_cast<float>(query.size()));
  std::vector<float> weight(seen);
  for (std::size_t t = 0; t < seen; ++t)
    weight[t] = scale * dot(query, row(keys, t).subspan(kv_at, query.size()));
  const float most = *std::ranges::max_element(weight);
  float sum = 0;
  for (float& each : weight) sum += each = std::exp(each - most);
  std::ranges::fill(out, 0.f);
  for (std::size_t t = 0; t < seen; ++t) {
    const std::span<const float> value = row(values, t).subspan(kv_at, query.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += weight[t] / sum * value[i];
  }
}

/// Attention over this part's heads: a part of a sum.
mw::tensor attention(const part& p, const layer& l, mw::tensor& keys, mw::tensor& values,
                     const mw::tensor& x, int at) {
  const auto head_width = static_cast<std::size_t>(p.of.head_width());
  const auto shared_by = static_cast<std::size_t>(p.of.heads / p.of.kv_heads);
  const mw::tensor h = normalized(x, l.attention_norm);
  mw::tensor query = product(h, l.query);
  mw::tensor key = product(h, l.key);
  const mw::tensor value = product(h, l.value);
  rotate(query, head_width, at);
  rotate(key, head_width, at);
  mw::tensor found(query.shape(), mw::dtype::float32);
  for (std::size_t r = 0; r < length_of(x, 0); ++r) {
    const std::size_t position = static_cast<std::size_t>(at) + r;
    std::ranges::copy(row(std::as_const(key), r), row(keys, position).begin());
    std::ranges::copy(row(value, r), row(values, position).begin());
    for (std::size_t head = 0; head * head_width < length_of(query, 1); ++head) {
      attend(row(query, r).subspan(head * head_width, head_width), keys, values,
             head / shared_by * head_width, position + 1,
             row(found, r).subspan(head * head_width, head_width));
    }
  }
  return product(found, l.output);
}

/// SwiGLU over this part of the inner width: a part of a sum.
mw::tensor feed_forward(const layer& l, const mw::tensor& x) {
  const mw::tensor h = normalized(x, l.mlp_norm);
  mw::tensor gate = product(h, l.gate);
  const mw::tensor up = product(h, l.up);
  const std::span<float> g = gate.as<float>();
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] = g[i] / (1 + std::exp(-g[i])) * up.as<float>()[i];
  return product(gate, l.down);
}

/// Returns a tensor where this program can compute with it, if need be as a copy in
/// `copied`. It has no kernels: what lies on a device is copied to the host and back,
/// which a real engine would not do.
mw::task<const mw::tensor*> readable(const mw::tensor& x, mw::tensor& copied) {
  if (x.place().is_host()) co_return &x;
  copied = co_await mw::worker::host_copy_of(x);
  co_return &copied;
}

/// The same of a layer that lies on a device.
mw::task<layer> on_host(const layer& l) {
  layer copy;
  copy.attention_norm = co_await mw::worker::host_copy_of(l.attention_norm);
  copy.query = co_await mw::worker::host_copy_of(l.query);
  copy.key = co_await mw::worker::host_copy_of(l.key);
  copy.value = co_await mw::worker::host_copy_of(l.value);
  copy.output = co_await mw::worker::host_copy_of(l.output);
  copy.mlp_norm = co_await mw::worker::host_copy_of(l.mlp_norm);
  copy.gate = co_await mw::worker::host_copy_of(l.gate);
  copy.up = co_await mw::worker::host_copy_of(l.up);
  copy.down = co_await mw::worker::host_copy_of(l.down);
  co_return copy;
}

/// Adds up over the workers of the stage, on their devices if they have some.
mw::task<void> sum_up(mw::tensor& x, mw::worker* me) {
  if (me == nullptr) co_return;
  mw::tensor sum = co_await me->copy_of(x);
  co_await me->world().all_reduce(sum, mw::sum);
  x = co_await mw::worker::host_copy_of(sum);
}

/// Loads tensors of one worker.
class part_loader {
 public:
  part_loader(const mw::weight_files& from, part_place at, const mw::worker* me) noexcept
      : from_(from), at_(at), me_(me) {}

  [[nodiscard]] mw::task<mw::tensor> whole(std::string name) const {
    const mw::stored_tensor& all = from_.at(name);
    return load(std::move(name), mw::weight_slice::whole(all));
  }
  /// Of a matrix the rows (dimension 0) or the columns (1) that are this worker's.
  [[nodiscard]] mw::task<mw::tensor> own(std::string name, std::size_t dimension) const {
    const mw::stored_tensor& all = from_.at(name);
    return load(std::move(name),
                mw::weight_slice::split(all, dimension, at_.rank, at_.size));
  }

 private:
  mw::task<mw::tensor> load(std::string name, mw::weight_slice slice) const {
    if (me_ == nullptr) co_return co_await from_.load(name, slice);
    mw::tensor made = me_->new_tensor(slice.shape(), mw::dtype::float32);
    co_await from_.load_into(made, name, slice);
    co_return made;
  }

  const mw::weight_files& from_;
  part_place at_;
  const mw::worker* me_;
};

mw::task<layer> read_layer(const part_loader& from, int number) {
  const std::string at = fmt::format("model.layers.{}.", number);
  layer l;
  l.attention_norm = co_await from.whole(at + "input_layernorm.weight");
  l.query = co_await from.own(at + "self_attn.q_proj.weight", 0);
  l.key = co_await from.own(at + "self_attn.k_proj.weight", 0);
  l.value = co_await from.own(at + "self_attn.v_proj.weight", 0);
  l.output = co_await from.own(at + "self_attn.o_proj.weight", 1);
  l.mlp_norm = co_await from.whole(at + "post_attention_layernorm.weight");
  l.gate = co_await from.own(at + "mlp.gate_proj.weight", 0);
  l.up = co_await from.own(at + "mlp.up_proj.weight", 0);
  l.down = co_await from.own(at + "mlp.down_proj.weight", 1);
  co_return l;
}

/// Returns the logits behind the last row. Each worker has those of its tokens.
mw::task<mw::tensor> logits_of(const part& p, const mw::tensor& x, mw::worker* me) {
  const std::span<const float> last = row(x, length_of(x, 0) - 1);
  const mw::tensor one = mw::tensor::copy_of(last, {1, last.size()});
  mw::tensor copied_norm;
  mw::tensor copied_head;
  const mw::tensor* const norm = co_await readable(p.norm, copied_norm);
  const mw::tensor* const head = co_await readable(p.head, copied_head);
  mw::tensor own = product(normalized(one, *norm), *head);
  if (me == nullptr) {
    own.reshape(own.count());
    co_return own;
  }
  const mw::tensor given = co_await me->copy_of(own);
  mw::tensor all = me->new_tensor(p.of.tokens, mw::dtype::float32);
  co_await me->world().all_gather(given, all);
  co_return all;
}

}  // namespace

mw::task<part> read_part(model_config of, std::string path, part_place at,
                         const mw::worker* me) {
  const mw::weight_files files = co_await mw::weight_files::open(std::move(path));
  const part_loader from(files, at, me);
  part p{of, at, {}, {}, {}, {}};
  if (at.is_first()) p.embedding = co_await from.whole("model.embed_tokens.weight");
  const int each = of.layers / at.stages;
  for (int i = at.stage * each; i < (at.stage + 1) * each; ++i)
    p.layers.push_back(co_await read_layer(from, i));
  if (at.is_last()) {
    p.norm = co_await from.whole("model.norm.weight");
    p.head = co_await from.own("lm_head.weight", 0);
  }
  co_return p;
}

kv_cache empty_cache(const part& p) {
  kv_cache cache;
  for (const layer& each : p.layers) {
    const mw::shape rows(p.of.longest, each.key.shape()[0]);
    cache.keys.push_back(mw::tensor::zeros(rows, mw::dtype::float32));
    cache.values.push_back(mw::tensor::zeros(rows, mw::dtype::float32));
  }
  return cache;
}

mw::task<mw::tensor> embed(const part& p, std::vector<int> tokens) {
  mw::tensor copied;
  const mw::tensor* const embedding = co_await readable(p.embedding, copied);
  mw::tensor x({tokens.size(), static_cast<std::size_t>(p.of.width)}, mw::dtype::float32);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= p.of.tokens)
      throw std::invalid_argument(fmt::format("there is no token {}", tokens[i]));
    std::ranges::copy(row(*embedding, static_cast<std::size_t>(tokens[i])),
                      row(x, i).begin());
  }
  co_return x;
}

mw::task<mw::tensor> run_part(const part& p, kv_cache& cache, mw::tensor x, int at,
                              mw::worker* me) {
  if (at < 0 || at + static_cast<int>(length_of(x, 0)) > p.of.longest)
    throw std::length_error(fmt::format("the cache has {} positions", p.of.longest));
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    layer copied;
    const bool is_here = p.layers[i].query.place().is_host();
    if (!is_here) copied = co_await on_host(p.layers[i]);
    const layer& l = is_here ? p.layers[i] : copied;
    mw::tensor sum = attention(p, l, cache.keys[i], cache.values[i], x, at);
    co_await sum_up(sum, me);
    add(x, sum);
    sum = feed_forward(l, x);
    co_await sum_up(sum, me);
    add(x, sum);
  }
  if (!p.at.is_last()) co_return x;
  co_return co_await logits_of(p, x, me);
}
