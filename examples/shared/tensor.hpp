// The tensors that examples send: floats, in host memory or on a GPU.
#pragma once

#include <manyworlds/gpu.hpp>
#include <manyworlds/mw.hpp>
#include <memory>
#include <optional>
#include <span>
#include <vector>

/// Where a process allocates its tensors, and in which kind of worlds they travel.
class tensor_memory {
 public:
  /// Host memory, or, from 0 on, the CUDA device of that number.
  explicit tensor_memory(int device) : device_(device) {
    if (device < 0) return;
    pool_.emplace(device);
    pinned_.emplace(mw::pinned_pool_options{.device = device});
  }

  [[nodiscard]] mw::world_options world(mw::world_name name, int rank, int size) const {
    mw::world_options options{.name = name, .rank = rank, .size = size};
    if (!pool_) return options;
    options.backend = mw::backend_kind::nccl;
    options.device = device_;
    return options;
  }

 private:
  friend class tensor;
  const int device_;
  std::optional<mw::device_pool> pool_;
  std::optional<mw::pinned_pool> pinned_;
};

/// Floats that the host reads and writes. With a GPU their copy there travels. The
/// examples have no kernels, so it is brought to the host for computing.
class tensor {
 public:
  tensor() = default;
  tensor(std::size_t count, const tensor_memory& of) {
    if (of.pool_) {
      on_gpu_ = std::make_unique<gpu_part>(count, of);
    } else {
      on_host_.resize(count);
    }
  }

  [[nodiscard]] std::span<float> values() noexcept {
    return on_gpu_ ? std::span<float>(on_gpu_->pinned) : std::span<float>(on_host_);
  }
  /// Null for one in host memory.
  [[nodiscard]] mw::device_buffer<float>* on_gpu() noexcept {
    return on_gpu_ ? &on_gpu_->there : nullptr;
  }

  mw::task<void> send(mw::world& w, mw::to peer, mw::lane on = {},
                      mw::user_word user = {}) {
    if (on_gpu_) {
      co_await to_gpu();
      co_await w.send(on_gpu_->there, peer, on, user);
    } else {
      co_await w.send(on_host_, peer, on, user);
    }
  }
  mw::task<mw::message_info> recv(mw::world& w, mw::from peer, mw::lane on = {}) {
    if (!on_gpu_) co_return co_await w.recv(on_host_, peer, on);
    const mw::message_info info = co_await w.recv(on_gpu_->there, peer, on);
    co_await to_host();
    co_return info;
  }
  mw::task<void> send_delivered(mw::world& w, mw::to peer) {
    if (on_gpu_) co_return co_await send(w, peer);
    co_await w.send(on_host_, peer).delivered();
  }
  /// Sends it behind a head; ends when the peer has it.
  template <class Head>
  mw::task<void> send_behind(const Head& head, mw::world& w, mw::to peer) {
    if (on_gpu_) {
      co_await to_gpu();
      co_await w.send_message(head, on_gpu_->there, peer);
    } else {
      co_await w.send_message(head, on_host_, peer).delivered();
    }
  }
  /// Runs `call` on the memory of both, on the host or a GPU: `in` is brought there
  /// before, `out` back afterwards. They may be the same.
  template <class Call>
  static mw::task<void> collective(tensor& in, tensor& out, Call call) {
    if (in.on_gpu_) {
      co_await in.to_gpu();
      co_await call(in.on_gpu_->there, out.on_gpu_->there);
      co_await out.to_host();
    } else {
      co_await call(in.on_host_, out.on_host_);
    }
  }

 private:
  mw::task<void> to_gpu() { co_await mw::copy(on_gpu_->there, on_gpu_->pinned); }
  mw::task<void> to_host() { co_await mw::copy(on_gpu_->pinned, on_gpu_->there); }

  /// The copy on the GPU, with a stream of its own: waiting on it waits for this
  /// tensor's world only.
  struct gpu_part {
    gpu_part(std::size_t count, const tensor_memory& of)
        : stream(of.device_),
          there(*of.pool_, count, stream),
          pinned(*of.pinned_, count) {}
    mw::owned_stream stream;
    mw::device_buffer<float> there;
    mw::pinned_buffer<float> pinned;
  };

  std::vector<float> on_host_;
  std::unique_ptr<gpu_part> on_gpu_;
};
