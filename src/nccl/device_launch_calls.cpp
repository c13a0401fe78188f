// The calls of NCCL that each kind of operation is.
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "nccl/cuda_library.hpp"
#include "nccl/device_launch.hpp"
#include "nccl/nccl_library.hpp"

namespace manyworlds::inline v0::detail::nccl {

namespace {

// One group is one launch: NCCL takes 2,048 pieces of it at most, and prepares them all
// before it launches any.
constexpr std::size_t pieces_of_a_group = 512;

/// Groups the calls of the thread while it lives. NCCL counts nested groups as one.
class call_group {
 public:
  call_group() : begun_(nccl_library::get().ncclGroupStart()) {}
  call_group(const call_group&) = delete;
  call_group& operator=(const call_group&) = delete;
  ~call_group() {
    if (open_ && begun_ == ncclSuccess) (void)nccl_library::get().ncclGroupEnd();
  }
  /// The first error of the calls, or the group's own.
  [[nodiscard]] ncclResult_t end(ncclResult_t first) {
    if (begun_ != ncclSuccess) return begun_;
    open_ = false;
    const ncclResult_t ended = nccl_library::get().ncclGroupEnd();
    return first != ncclSuccess ? first : ended;
  }

 private:
  ncclResult_t begun_;
  bool open_ = true;
};

/// For what is only moved: bytes, which an NCCL knows that does not know the type.
struct moved {
  explicit moved(const collective_terms& terms)
      : count(static_cast<std::size_t>(terms.count) * size_of(terms.type)) {}
  std::size_t count;
  ncclDataType_t type = ncclUint8;
};

std::byte* at(const const_device_view& v) noexcept {
  return static_cast<std::byte*>(const_cast<void*>(v.data()));
}

}  // namespace

ncclResult_t device_launch::call_nccl() {
  if (group.empty()) {
    if (is_message(kind)) return point_to_point();
    if (kind != operation_kind::native) return collective();
    try {
      call(context, on, stream);
    } catch (...) {
      thrown_ = std::current_exception();
    }
    // What marks the end would be captured with it.
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    (void)cuda_library::get().cudaStreamIsCapturing(stream, &capture);
    if (capture != cudaStreamCaptureStatusNone) {
      throw std::logic_error("native() left a capture of the world's stream open");
    }
    return ncclSuccess;
  }
  call_group all;
  ncclResult_t first = is_message(kind) ? point_to_point() : collective();
  for (const auto& other : group) {
    if (first != ncclSuccess) break;
    first = is_message(other->kind) ? other->point_to_point() : other->collective();
  }
  return all.end(first);
}

ncclResult_t device_launch::point_to_point() {
  const nccl_library& nccl = nccl_library::get();
  // Bytes: what the other side's views are of is its own affair, if the types agree.
  const auto move = [&](std::byte* where, std::size_t bytes) {
    return kind == operation_kind::send
               ? nccl.ncclSend(where, bytes, ncclUint8, peer, on, stream)
               : nccl.ncclRecv(where, bytes, ncclUint8, peer, on, stream);
  };
  if (views.size() == 1 && (!is_matched || layout.is_one_piece())) {
    if (views[0].empty()) return ncclSuccess;
    return move(at(views[0]), views[0].size_bytes());
  }
  // Both sides cut where either's pieces end.
  std::optional<layout_cursor> other;
  if (is_matched) other.emplace(layout);
  ncclResult_t first = ncclSuccess;
  std::optional<call_group> together;
  std::size_t grouped = 0;
  const auto end_group = [&] {
    if (together) first = together->end(first);
    together.reset();
    grouped = 0;
  };
  for (const const_device_view& v : views) {
    for (std::size_t done = 0; done < v.size_bytes() && first == ncclSuccess;) {
      std::size_t bytes = v.size_bytes() - done;
      if (other) {
        bytes = std::min<std::size_t>(bytes, other->left());
        if (bytes == 0) break;
        other->advance(bytes);
      }
      if (!together) together.emplace();
      first = move(at(v) + done, bytes);
      done += bytes;
      if (++grouped == pieces_of_a_group) end_group();
    }
  }
  end_group();
  return first;
}

ncclResult_t device_launch::collective() {
  const nccl_library& nccl = nccl_library::get();
  const auto count = static_cast<std::size_t>(terms.count);
  const auto type = static_cast<ncclDataType_t>(terms.type);
  const auto by = static_cast<ncclRedOp_t>(terms.by);
  const moved bytes(terms);
  const void* const in = views[0].data();
  void* const out = const_cast<void*>(views[1].data());
  switch (kind) {
    case operation_kind::broadcast:
      return nccl.ncclBroadcast(in, out, bytes.count, bytes.type, terms.root, on, stream);
    case operation_kind::reduce:
      return nccl.ncclReduce(in, out, count, type, by, terms.root, on, stream);
    case operation_kind::all_reduce:
      return nccl.ncclAllReduce(in, out, count, type, by, on, stream);
    case operation_kind::all_gather:
      return nccl.ncclAllGather(in, out, bytes.count, bytes.type, on, stream);
    case operation_kind::reduce_scatter:
      return nccl.ncclReduceScatter(in, out, count, type, by, on, stream);
    default:
      return parts();
  }
}

// gather, scatter and all_to_all as the sends and receives that they are: NCCL has them
// by name since 2.28.3, made of the same.
ncclResult_t device_launch::parts() {
  const nccl_library& nccl = nccl_library::get();
  const auto [count, type] = moved(terms);
  if (count == 0) return ncclSuccess;
  const auto part = [&, bytes = count](const const_device_view& v, rank_t rank) {
    return at(v) + static_cast<std::size_t>(rank) * bytes;
  };
  const bool is_root = terms.root == self;
  call_group all;
  ncclResult_t first = ncclSuccess;
  // By value: clang 14 captures no structured bindings.
  const auto send = [&, count = count, type = type](std::byte* where, rank_t to) {
    if (first == ncclSuccess) first = nccl.ncclSend(where, count, type, to, on, stream);
  };
  const auto receive = [&, count = count, type = type](std::byte* where, rank_t from) {
    if (first == ncclSuccess) first = nccl.ncclRecv(where, count, type, from, on, stream);
  };
  if (kind == operation_kind::gather) {
    send(at(views[0]), terms.root);
    for (rank_t r = 0; is_root && r < size; ++r) receive(part(views[1], r), r);
  } else if (kind == operation_kind::scatter) {
    for (rank_t r = 0; is_root && r < size; ++r) send(part(views[0], r), r);
    receive(at(views[1]), terms.root);
  } else {
    for (rank_t r = 0; r < size; ++r) {
      send(part(views[0], r), r);
      receive(part(views[1], r), r);
    }
  }
  return all.end(first);
}

}  // namespace manyworlds::inline v0::detail::nccl
