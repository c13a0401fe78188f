#include "receiver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace manyworlds::inline v0::host {

receiver::receiver(core& shared, rank_t peer, sender& answers, frame_handler& others)
    : core_(shared),
      peer_(peer),
      answers_(answers),
      others_(others),
      limits_{shared.options.eager_limit, shared.options.slice},
      capacity_(frame_size + shared.options.eager_limit),
      input_(std::make_unique_for_overwrite<std::byte[]>(capacity_)) {}

std::span<const iovec> receiver::entries() {
  // A frame begun in the buffer must find room for its end.
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0) {
    std::memmove(input_.get(), input_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::size_t used = 0;
  direct_ = 0;
  if (sink_) {
    used = sink_->target.fill(std::span(entries_).first(sink_entries), sink_left_);
    for (std::size_t i = 0; i < used; ++i) direct_ += entries_[i].iov_len;
  }
  if (direct_ == sink_left_) entries_[used++] = {input_.get() + end_, capacity_ - end_};
  return std::span(entries_).first(used);
}

const char* receiver::received(std::size_t count) {
  const std::size_t direct = std::min(count, direct_);
  direct_ = 0;
  core_.counters.bytes_received += count;
  if (direct > 0) fill_sink(direct, nullptr);
  end_ += count - direct;
  const char* wrong = parse();
  if (!wrong) settle();
  return wrong;
}

const char* receiver::parse() {
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
      fill_sink(step, input_.get() + begin_);
      begin_ += step;
      continue;
    }
    if (there < frame_size) return nullptr;
    frame f;
    const std::span<const std::byte, frame_size> header(input_.get() + begin_,
                                                        frame_size);
    if (const char* wrong = decode(header, limits_, f)) return wrong;
    std::size_t content = 0;
    if (f.kind == frame_kind::data) {
      begin_ += frame_size;
    } else {
      content = content_bytes(f);
      if (there < frame_size + content) return nullptr;
      begin_ += frame_size + content;
    }
    const std::byte* behind = header.data() + frame_size;
    if (const char* wrong = handle(f, {behind, content})) return wrong;
  }
  return nullptr;
}

const char* receiver::handle(const frame& f, std::span<const std::byte> content) {
  switch (f.kind) {
    case frame_kind::eager:
    case frame_kind::offer:
      return on_message(f, content);
    case frame_kind::data:
      return on_data(f);
    case frame_kind::complete:
      return on_complete(f);
    case frame_kind::withdraw:
      return on_withdraw(f);
    case frame_kind::pull:
      return answers_.on_pull(f);
    case frame_kind::unpull:
      return answers_.on_unpull(f);
    case frame_kind::taken:
      return answers_.on_taken(f);
    case frame_kind::withdrawn:
      return answers_.on_withdrawn(f);
    case frame_kind::credit:
      return answers_.on_credit(f);
    default:
      return others_.handle(f);
  }
}

// Copies, or accounts for what the kernel has written there.
void receiver::fill_sink(std::size_t bytes, const std::byte* from) {
  inbound_message& m = *sink_;
  if (from) {
    for (std::size_t copied = 0; copied < bytes;) {
      const auto place = m.target.front(bytes - copied);
      std::memcpy(place.data(), from + copied, place.size());
      m.target.advance(place.size());
      copied += place.size();
    }
  } else {
    m.target.advance(bytes);
  }
  m.received += bytes;
  m.taker->bytes_moved += bytes;
  m.taker->begun = true;
  m.last_progress = core_.home.now();
  sink_left_ -= bytes;
  if (sink_left_ == 0) sink_ = nullptr;
}

void receiver::answer(frame_kind kind, std::uint64_t id, std::uint32_t generation) {
  frame f;
  f.kind = kind;
  f.id = id;
  f.generation = generation;
  answers_.control(f);
}

void receiver::pull(inbound_message& m) {
  ++m.generation;
  m.last_progress = core_.home.now();
  pulled_.push_back(&m);
  answer(frame_kind::pull, m.id, m.generation);
  core_.watch();
}

void receiver::consumed(inbound_message& m, bool was_received) {
  named_.erase(m.id);
  std::erase(pulled_, &m);
  if (sink_ == &m) {
    sink_ = nullptr;
    skip_left_ = std::exchange(sink_left_, 0);
  }
  if (was_received) {
    ++core_.counters.messages_received;
    if (m.wants_taken) answer(frame_kind::taken, m.id);
  }
  inbound_lane& l = *m.on;
  l.owed_bytes += m.cost;
  l.owed_content += m.accounted;
  if (m.is_accounted) ++l.owed_messages;
  owed_bytes_ += m.cost;
  if (!l.is_owed) {
    l.is_owed = true;
    owing_.push_back(&l);
    core_.tidy_soon();
  }
}

// Small credits ride with other frames: by themselves they would cost a packet per
// message.
void receiver::return_credit(bool all) {
  const std::size_t worth_it = core_.options.lane_window / 2;
  if (owed_bytes_ >= core_.peer_window / 2) all = true;
  std::erase_if(owing_, [&](inbound_lane* l) {
    if (!all && l->owed_bytes < worth_it) return false;
    frame f;
    f.kind = frame_kind::credit;
    f.on = l->number;
    f.id = l->owed_messages;
    f.word = l->owed_content;
    f.bytes = l->owed_bytes;
    answers_.control(f);
    l->held_bytes -= l->owed_bytes;
    held_bytes_ -= l->owed_bytes;
    owed_bytes_ -= l->owed_bytes;
    l->owed_bytes = l->owed_content = 0;
    l->owed_messages = 0;
    l->is_owed = false;
    core_.matcher->tidy(peer_, *l);
    return true;
  });
}

void receiver::unpull(inbound_message& m) {
  std::erase(pulled_, &m);
  if (sink_ == &m) {
    sink_ = nullptr;
    skip_left_ = std::exchange(sink_left_, 0);
  }
  answer(frame_kind::unpull, m.id, m.generation);
  core_.matcher->release_taker(m);
}

bool receiver::withdraw(inbound_message& m) {
  if (sink_ == &m && direct_ > 0) {
    m.giving_up = true;
    return false;
  }
  unpull(m);
  return true;
}

void receiver::settle() {
  for (std::size_t i = 0; i < pulled_.size();) {
    inbound_message& m = *pulled_[i];
    if (!m.giving_up) {
      ++i;
      continue;
    }
    operation& op = *m.taker;
    unpull(m);
    if (closed_detail_.empty()) {
      op.end(operation_end::withdrawn);
    } else {
      op.fail(cause::closed, closed_detail_);
    }
    i = 0;
  }
}

bool receiver::is_stalled(time_point now) const {
  return std::any_of(pulled_.begin(), pulled_.end(), [&](const inbound_message* m) {
    return now - m->last_progress >= core_.options.stall_limit;
  });
}

void receiver::restart_windows(time_point now) {
  for (inbound_message* m : pulled_) m->last_progress = now;
}

}  // namespace manyworlds::inline v0::host
