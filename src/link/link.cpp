#include "link/link.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "link/local_peer.hpp"
#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {
constexpr std::size_t header_size = sizeof(std::uint32_t) + 1;
constexpr std::size_t read_size = 16 * 1024;
}  // namespace

link::link(reactor& service, stream connection, process_address peer, link_listener& told,
           shm::local_discovery& discovery)
    : service_(service),
      connection_(std::move(connection)),
      peer_(std::move(peer)),
      told_(told),
      local_(std::make_unique<shm::local_peer>(*this, discovery)),
      last_heard_(service.now().time_since_epoch().count()),
      peer_progressed_(service.now().time_since_epoch().count()) {}

link::~link() = default;

void link::send(std::span<const std::byte> message) { queue(frame::message, message); }

void link::beat(std::uint64_t progress, cpu_binding cpu, bool is_due) {
  if (local_->shares_memory()) {
    if (const auto theirs = local_->exchange_beats({progress, cpu})) {
      note_heard(service_.now());
      note_progress(theirs->progress);
      peer_cpu_ = theirs->cpu;
    }
    return;
  }
  // Outgoing data says as much as a beat, and beats must not pile up for a peer that
  // reads nothing.
  if (!is_due || !outgoing_.empty()) return;
  wire_writer signs;
  signs.put(progress).put(cpu.word());
  queue(frame::beat, signs.view());
}

task<void> link::all_heard() {
  const std::uint64_t mine = ++questions_asked_;
  queue(frame::question, {});
  while (up_ && questions_answered_ < mine) {
    answered_.reset();
    co_await answered_.wait();
  }
}

void link::note_progress(std::uint64_t turns) noexcept {
  if (turns == peer_turns()) return;
  peer_progressed_.store(service_.now().time_since_epoch().count(),
                         std::memory_order_relaxed);
  peer_turns_.store(turns, std::memory_order_relaxed);
}

void link::say_goodbye() {
  if (!up_ || leaving_) return;
  queue(frame::goodbye, {});
  leaving_ = true;
  local_->say_goodbye();
  something_to_send_.set();
}

void link::offer_end() {
  if (!is_usable()) return;
  queue(frame::unused, {});
  offered_end_ = true;
}

void link::queue(frame kind, std::span<const std::byte> body) {
  if (!up_ || leaving_) return;
  if (outgoing_.size() + body.size() > send_limit) {
    end(cause::silent_peer, "the peer does not read control messages");
    return;
  }
  wire_writer head;
  head.put(static_cast<std::uint32_t>(body.size())).put(kind);
  outgoing_.insert(outgoing_.end(), head.view().begin(), head.view().end());
  outgoing_.insert(outgoing_.end(), body.begin(), body.end());
  something_to_send_.set();
}

void link::end(enum cause why, const std::string& detail) noexcept {
  if (!std::exchange(up_, false)) return;
  over_.set();
  answered_.set();
  local_->close();
  told_.link_ended(shared_from_this(), why, detail);
}

void link::peer_is_gone(const std::string& noticed_by) noexcept {
  const bool in_order = peer_left_ || leaving_;
  end(in_order ? cause::runtime_stopped : cause::peer_died,
      in_order ? "the peer's runtime stopped" : noticed_by);
}

task<void> link::run() {
  // Keeps this object until both directions are quiet, also if all others release it.
  const auto self = shared_from_this();
  co_await when_any(read(), write(), until_peer_died(), over_.wait());
  end(cause::runtime_stopped, "the link was closed here");
  connection_.close();
}

task<void> link::read() {
  bytes buffer;
  std::size_t filled = 0;
  for (;;) {
    if (buffer.size() < filled + read_size) buffer.resize(filled + read_size);
    const io_result got =
        co_await connection_.receive_some(std::span(buffer).subspan(filled));
    // A link that was ended here meanwhile delivers nothing behind its end.
    if (!up_) co_return;
    if (!got.ok() || got.count() == 0) {
      // An end for lack of acknowledgement says something about the network only.
      peer_ended_ = got.ok() || got.error() == ECONNRESET;
      peer_is_gone(got.ok()
                       ? "end of its link"
                       : fmt::format("its link ended: {}", std::strerror(got.error())));
      co_return;
    }
    note_heard(service_.now());
    filled += got.count();
    MW_ASSERT(filled <= buffer.size(), "what is received fits into the buffer");
    std::size_t taken = 0;
    while (filled - taken >= header_size) {
      std::uint32_t size = 0;
      std::memcpy(&size, buffer.data() + taken, sizeof size);
      const auto kind = std::to_integer<std::uint8_t>(buffer[taken + sizeof size]);
      if (size > longest_message || kind > static_cast<std::uint8_t>(frame::last)) {
        end(cause::protocol_error,
            fmt::format("a control frame of kind {} and {} bytes", kind, size));
        co_return;
      }
      if (filled - taken < header_size + size) break;
      const auto body =
          std::span<const std::byte>(buffer).subspan(taken + header_size, size);
      try {
        take(static_cast<frame>(kind), body);
      } catch (const wire_error& e) {
        end(cause::protocol_error, e.what());
      }
      // The message may have ended the link.
      if (!up_) co_return;
      taken += header_size + size;
      MW_ASSERT(taken <= filled, "only what was received is taken");
    }
    if (taken > 0) {
      std::memmove(buffer.data(), buffer.data() + taken, filled - taken);
      filled -= taken;
    }
  }
}

task<void> link::until_peer_died() {
  co_await died_.wait();
  // The last messages of the peer, a goodbye or a BROKEN, may wait in our socket. They
  // are read first.
  co_await sleep_for(duration::zero());
  co_await sleep_for(duration::zero());
  if (!up_) co_return;
  saw_death_ = true;
  peer_is_gone(died_by_);
}

void link::take(frame kind, std::span<const std::byte> body) {
  MW_ASSERT(service_.is_current(), "a link reads on the service reactor");
  switch (kind) {
    case frame::beat: {
      wire_reader in(body);
      const auto turns = in.get<std::uint64_t>();
      const auto cpu = cpu_binding::of_word(in.get<std::uint32_t>());
      in.expect_end();
      note_progress(turns);
      peer_cpu_ = cpu;
      break;
    }
    case frame::message:
      told_.link_message(shared_from_this(), body);
      break;
    case frame::goodbye:
      peer_left_ = true;
      break;
    case frame::unused:
      // A goodbye that crosses our first use of the link would look like the end of a
      // world's member.
      is_held() ? queue(frame::in_use, {}) : say_goodbye();
      break;
    case frame::in_use:
      declined_ = std::exchange(offered_end_, false);
      break;
    case frame::pairing_nonces:
      return local_->take_nonces(body);
    case frame::pairing_outcome:
      return local_->take_outcome(body);
    case frame::slot:
      return local_->take_slot(body);
    case frame::slots_returned:
      return local_->take_returns(body);
    case frame::slots_ceded:
      return local_->take_ceded(body);
    case frame::question:
      // The answer goes behind all that was said before.
      queue(frame::answer, {});
      break;
    case frame::answer:
      if (questions_answered_ == questions_asked_)
        throw wire_error("an answer that nothing had asked for");
      ++questions_answered_;
      answered_.set();
      break;
  }
}

task<void> link::write() {
  for (;;) {
    while (!outgoing_.empty()) {
      const bytes sending = std::exchange(outgoing_, {});
      const io_result sent = co_await connection_.send_all(sending);
      if (!sent.ok()) {
        // The reading side reports how the peer ended; it may still hold messages that
        // say why.
        co_await over_.wait();
        co_return;
      }
    }
    if (leaving_) {
      connection_.shut_down_sending();
      co_await over_.wait();
      co_return;
    }
    something_to_send_.reset();
    co_await something_to_send_.wait();
  }
}

}  // namespace manyworlds::inline v0::detail
