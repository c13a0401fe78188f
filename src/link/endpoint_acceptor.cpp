#include "link/endpoint_acceptor.hpp"

#include <cerrno>
#include <string>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/coro/when_any.hpp"
#include "manyworlds/coro/within.hpp"
#include "manyworlds/detail/assertion.hpp"

namespace manyworlds::inline v0::detail {

namespace {

using namespace std::chrono_literals;

/// The most connections in their first words at once; the next wait in the backlog.
constexpr std::size_t most_greetings = 256;
/// If none of that many greetings ends within this, all of them are strangers that say
/// nothing. Peers that dial by the thousand end their greetings one after the other.
constexpr duration standstill_limit = 250ms;

}  // namespace

/// Counts a connection that is in its first words.
class endpoint::acceptor::greeting {
 public:
  explicit greeting(acceptor& at) noexcept : at_(&at) {
    MW_ASSERT(at.greetings_ < most_greetings, "greetings are limited");
    ++at.greetings_;
  }
  greeting(greeting&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
  greeting& operator=(greeting&&) = delete;
  ~greeting() {
    if (!at_) return;
    MW_ASSERT(at_->greetings_ > 0, "a greeting ends once");
    --at_->greetings_;
    at_->greeting_ended_.set();
  }

 private:
  acceptor* at_;
};

task<void> endpoint::acceptor::run() {
  for (;;) {
    co_await until_one_more_may_greet();
    const io_result accepted = co_await listener_.accept();
    if (!accepted.ok()) {
      if (accepted.error() == EMFILE || accepted.error() == ENFILE) {
        owner_.log(log_level::info,
                   "no descriptor is left to accept a peer (ulimit -n): the next try is "
                   "in 50 ms");
      }
      co_await sleep_for(50ms);
      continue;
    }
    stream s(owner_.service_, socket(owner_.service_.sockets(), accepted.handle()));
    owner_.spawn(greet_one(std::move(s), greeting(*this)));
  }
}

// A stranger must dial again after this, and few do so soon, while a peer waits in the
// backlog. All that stand still go at once: if only the oldest went, each of a hundred
// strangers would delay those behind it.
task<void> endpoint::acceptor::until_one_more_may_greet() {
  while (greetings_ >= most_greetings) {
    greeting_ended_.reset();
    const time_point begun = owner_.service_.now();
    bool stands_still = false;
    try {
      co_await within(greeting_ended_.wait(), standstill_limit);
    } catch (const timed_out&) {
      // A reactor that was late itself has not listened: they get a new window.
      stands_still = owner_.service_.now() - begun < 2 * standstill_limit;
    }
    if (!stands_still) continue;
    owner_.log(log_level::info,
               std::to_string(greetings_) +
                   " connections said nothing in their hello and were closed");
    hang_up_.set();
    hang_up_.reset();
  }
}

/// Keeps us from dialling from the moment the peer's dial is welcome until it is a
/// link. Either side would take a second connection for a new link, and end the first
/// under the worlds that use it.
class endpoint::acceptor::acceptance {
 public:
  acceptance() noexcept = default;
  acceptance(const acceptance&) = delete;
  acceptance& operator=(const acceptance&) = delete;
  ~acceptance() {
    if (!entry_) return;
    MW_ASSERT(entry_->accepting > 0, "an acceptance ends once");
    --entry_->accepting;
    entry_->changed.set();
  }
  void begin(std::shared_ptr<entry> e) {
    MW_ASSERT(!entry_, "an acceptance begins once");
    entry_ = std::move(e);
    ++entry_->accepting;
  }

 private:
  std::shared_ptr<entry> entry_;
};

task<std::optional<hello>> endpoint::acceptor::answer_in_time(stream& s,
                                                              acceptance& welcomed) {
  const auto deciding = [this, &welcomed](const hello& h) {
    const hello_status status = decide(h);
    const bool becomes_link = h.purpose == connection_purpose::link;
    if (status == hello_status::welcome && becomes_link)
      welcomed.begin(owner_.entry_of(h.self.id));
    return status;
  };
  const std::function<hello_status(const hello&)> decide_by = deciding;
  auto ended = co_await when_any(
      within(owner_.greeter_.answer(s, decide_by), greeting_limit), hang_up_.wait());
  std::optional<std::optional<hello>>& words = std::get<0>(ended);
  // It was closed as one of too many.
  if (!words) co_return std::nullopt;
  co_return std::move(*words);
}

task<void> endpoint::acceptor::greet_one(stream s, [[maybe_unused]] greeting counted) {
  std::string trouble;
  std::optional<hello> words;
  acceptance welcomed;
  try {
    words = co_await answer_in_time(s, welcomed);
  } catch (const link_error& e) {
    trouble = e.what();
  } catch (const timed_out&) {
    trouble = s.peer_address().text() + " connected and said nothing";
  }
  if (!trouble.empty()) {
    owner_.log(log_level::info, "refused a connection: " + trouble);
    co_return;
  }
  if (!words || owner_.leaving_) co_return;
  switch (words->purpose) {
    case connection_purpose::link:
      owner_.establish(std::move(s), words->self, false);
      break;
    case connection_purpose::data:
      owner_.told_.data_connection(std::move(s), *words);
      break;
    case connection_purpose::query:
      owner_.spawn(answer_query(std::move(s)));
      break;
  }
}

task<void> endpoint::acceptor::answer_query(stream s) {
  auto serve = [this](stream& from) -> task<void> {
    std::uint32_t size = 0;
    io_result got =
        co_await from.receive_exactly(std::as_writable_bytes(std::span(&size, 1)));
    if (!got.ok() || got.count() != sizeof size || size > link::longest_message)
      co_return;
    bytes question(size);
    got = co_await from.receive_exactly(question);
    if (!got.ok() || got.count() != size) co_return;
    const bytes answer = co_await owner_.told_.answer_query(std::move(question));
    wire_writer out;
    out.put(static_cast<std::uint32_t>(answer.size())).put_raw(answer);
    const bytes framed = out.take();
    co_await from.send_all(framed);
  };
  try {
    co_await within(serve(s), greeting_limit);
  } catch (const timed_out&) {
    // The asking side has its own deadline.
  } catch (const wire_error& e) {
    owner_.log(log_level::info,
               std::string("a question of a peer is malformed: ") + e.what());
  }
}

hello_status endpoint::acceptor::decide(const hello& h) {
  if (h.purpose != connection_purpose::link) return hello_status::welcome;
  const auto e = owner_.entry_of(h.self.id);
  // Two processes that dial each other at once must agree on one connection: the one that
  // the lower incarnation dialled.
  const bool ours_wins = owner_.self().id < h.self.id;
  if (ours_wins && (e->dialling || (e->up && e->up->is_usable() && e->dialled_by_us))) {
    return hello_status::already_dialling;
  }
  return hello_status::welcome;
}

}  // namespace manyworlds::inline v0::detail
