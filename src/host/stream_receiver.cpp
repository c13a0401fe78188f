#include "host/stream_receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "manyworlds/detail/assertion.hpp"
#include "memory/payload_copy.hpp"

namespace manyworlds::inline v0::detail::host {

namespace {

/// Half a slice: a turn that sends one has time to receive this much.
constexpr std::size_t largest_read = std::size_t{128} * 1024;
/// Behind a slice that another follows: what comes of the next one is copied once more.
constexpr std::size_t between_slices = std::size_t{4} * 1024;

}  // namespace

stream_receiver::stream_receiver(core& shared, rank_t peer, sender& answers,
                                 channel& owner)
    : receiver(shared, peer, answers, owner,
               {shared.options.eager_limit, shared.options.slice}),
      input_(frame_size + shared.options.eager_limit) {}

std::span<const iovec> stream_receiver::entries() {
  // A frame that has begun in the buffer must find room for its end.
  if (begin_ == end_) {
    begin_ = end_ = 0;
    input_.rest(core_.home.recently());
  } else if (begin_ > 0) {
    std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  MW_ASSERT(end_ < input_.capacity(), "a frame that has begun finds room for its end");
  MW_ASSERT((sink_ != nullptr) == (sink_left_ > 0) && (!sink_ || skip_left_ == 0),
            "the rest of a slice goes to one place");
  std::size_t used = 0;
  std::size_t behind = input_.capacity() - end_;
  direct_ = 0;
  if (sink_) {
    used = sink_->target.fill(std::span(entries_).first(sink_entries),
                              std::min(sink_left_, largest_read));
    for (std::size_t i = 0; i < used; ++i) direct_ += entries_[i].iov_len;
    const bool is_last = sink_->received + sink_left_ == sink_->payload_bytes;
    if (!is_last) behind = std::min(behind, between_slices);
  }
  if (direct_ == sink_left_) entries_[used++] = {input_.data() + end_, behind};
  MW_ASSERT(used > 0 && used <= entries_.size(), "the next bytes have a place");
  return std::span(entries_).first(used);
}

const char* stream_receiver::received(std::size_t count) {
  const std::size_t direct = std::min(count, direct_);
  direct_ = 0;
  core_.counters.bytes_received += count;
  if (direct > 0) fill_sink(direct, nullptr);
  end_ += count - direct;
  MW_ASSERT(begin_ <= end_, "what is read stands behind what was read before");
  input_.note_written(end_, core_.home.recently());
  const char* wrong = parse();
  if (!wrong) settle();
  return wrong;
}

const char* stream_receiver::parse() {
  while (!core_.stopping) {
    const std::size_t there = end_ - begin_;
    if (skip_left_ > 0) {
      const std::size_t step = std::min(skip_left_, there);
      begin_ += step;
      skip_left_ -= step;
      if (skip_left_ > 0) return nullptr;
      continue;
    }
    if (sink_) {
      const std::size_t step = std::min(sink_left_, there);
      if (step == 0) return nullptr;
      fill_sink(step, input_.data() + begin_);
      begin_ += step;
      continue;
    }
    if (there < frame_size) return nullptr;
    frame f;
    const std::span<const std::byte, frame_size> header(input_.data() + begin_,
                                                        frame_size);
    if (const char* wrong = decode(header, limits_, f)) return wrong;
    if (f.kind == frame_kind::data) {
      begin_ += frame_size;
      inbound_message* into = nullptr;
      if (const char* wrong = on_data(f, into)) return wrong;
      MW_ASSERT(!sink_ && sink_left_ == 0 && skip_left_ == 0,
                "a slice begins when the one before has ended");
      sink_ = into;
      (into ? sink_left_ : skip_left_) = static_cast<std::size_t>(f.bytes);
      continue;
    }
    const std::size_t content = content_bytes(f);
    if (there < frame_size + content) return nullptr;
    begin_ += frame_size + content;
    const std::byte* behind = header.data() + frame_size;
    if (const char* wrong = handle(f, {behind, content})) return wrong;
  }
  return nullptr;
}

// Copies bytes to the sink, or accounts for those that the kernel has written there.
void stream_receiver::fill_sink(std::size_t bytes, const std::byte* from) {
  MW_ASSERT(sink_ && bytes <= sink_left_,
            "a sink takes no more than the rest of its slice");
  inbound_message& m = *sink_;
  if (from) {
    for (std::size_t copied = 0; copied < bytes;) {
      const auto place = m.target.front(bytes - copied);
      copy_payload(place.data(), from + copied, place.size());
      m.target.advance(place.size());
      copied += place.size();
    }
  } else {
    m.target.advance(bytes);
  }
  note_progress(m, bytes);
  sink_left_ -= bytes;
  if (sink_left_ == 0) sink_ = nullptr;
}

void stream_receiver::let_go(inbound_message& m) noexcept {
  if (sink_ != &m) return;
  sink_ = nullptr;
  skip_left_ = std::exchange(sink_left_, 0);
}

}  // namespace manyworlds::inline v0::detail::host
