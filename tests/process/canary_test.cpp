// Law 4 over shared memory: a peer that was stopped in the midst of a large transfer, and
// goes on after the transfer was given up, touches nothing that came back.
#include <sys/uio.h>

#include "../support/refused_here.hpp"
#include "process_fixture.hpp"

namespace manyworlds::process_tests {

TEST_SUITE_BEGIN("process");

namespace {

constexpr std::size_t watched_bytes = std::size_t{64} << 20;
const std::string watched_text = std::to_string(watched_bytes);

/// How payloads travel: read out of the sender's memory, or, where that is refused, asked
/// for and sent through the chunks of the link.
enum class way { read, asked };

std::vector<std::string> settings(way w, bool impatient) {
  std::vector<std::string> all;
  if (w == way::asked) all.push_back("refuse=process_vm_readv");
  if (impatient) all.insert(all.end(), {"heartbeat=50", "suspect=300", "broken=1000"});
  return all;
}

/// A word of another process; nothing if it is not there.
std::optional<std::uint64_t> peek(pid_t pid, std::uint64_t address) {
  std::uint64_t word = 0;
  const iovec into{&word, sizeof word};
  const iovec there{reinterpret_cast<void*>(address), sizeof word};
  const bool got = ::process_vm_readv(pid, &into, 1, &there, 1, 0) == sizeof word;
  return got ? std::optional(word) : std::nullopt;
}

std::uint64_t address_in(const std::string& line) {
  return std::stoull(line.substr(line.rfind(' ') + 1));
}

/// Two members of the world "held", of which this test is none. The first is never
/// stopped: it gives up, and has the canaries.
struct two_members {
  two_members(engine_kind e, way w, bool impatient = false)
      : here(e),
        first(here.member(settings(w, impatient))),
        second(here.member(settings(w, impatient))) {
    first.order("world held 0 2");
    second.order("world held 1 2");
    first.expect("formed held");
    second.expect("formed held");
  }

  process& member(int rank) { return rank == 0 ? first : second; }
  void take(int rank, const std::string& tag, const std::string& limit = "") {
    member(rank).order("take held " + std::to_string(1 - rank) + " " + watched_text +
                       " " + tag + " " + limit);
  }
  void offer(int rank, const std::string& tag, int number,
             const std::string& limit = "") {
    member(rank).order("offer held " + std::to_string(1 - rank) + " " + watched_text +
                       " " + tag + " " + std::to_string(number) + " " + limit);
  }

  /// Begins a transfer and stops the second member when a quarter of it has come. False
  /// if it was too late: all of it has.
  bool begin_and_stop(int receiver, const std::string& limit) {
    take(receiver, "cut", receiver == 0 ? limit : "");
    const std::uint64_t at = address_in(member(receiver).expect("taking cut"));
    offer(1 - receiver, "cut", 1, receiver == 0 ? "" : limit);
    const pid_t pid = member(receiver).pid();
    const auto until = clock::now() + 20s;
    while (peek(pid, at + watched_bytes / 4) == 0) {
      if (clock::now() > until) throw std::runtime_error("no byte has come");
    }
    second.stop();
    return peek(pid, at + watched_bytes - 8) == 0;
  }

  /// What came back is as it was left, after the second member had time to do its worst:
  /// whatever it did before it obeyed.
  void check_canaries() {
    second.order("suspicions held");
    second.expect("suspicions held");
    first.order("canaries cut");
    CHECK(first.expect("canaries cut") == "canaries cut whole");
  }

  /// The world goes on: another message, in another buffer.
  void check_transfer(int receiver, const std::string& expected) {
    process& r = member(receiver);
    r.expect_one_of({"took " + expected});
    CHECK_FALSE(r.has_said("mixed"));
  }

  void check_up() {
    CHECK_FALSE(first.has_said("over held"));
    CHECK_FALSE(second.has_said("over held"));
    CHECK(first.end() == 0);
    CHECK(second.end() == 0);
  }

  site here;
  process first;
  process second;
};

/// A fast machine may be through before it can be stopped.
constexpr int attempts = 20;

/// As in `cancelled`, `timed_out`: how the first member gives up.
struct giving_up {
  const char* limit;
  const char* cause;
};
constexpr giving_up by_cancelling{"", "cancelled"};
constexpr giving_up by_a_deadline{"400", "timed_out"};

void give_up(two_members& m, const giving_up& how) {
  if (*how.limit == 0) m.first.order("give_up cut");
  CHECK(m.first.expect("lost cut") == std::string("lost cut ") + how.cause);
}

/// The sender gives up while the receiver is stopped in mid-transfer.
void stop_receiver(engine_kind e, way w, const giving_up& how) {
  bool was_cut = false;
  for (int attempt = 0; attempt < attempts && !was_cut; ++attempt) {
    two_members m(e, w);
    was_cut = m.begin_and_stop(1, how.limit);
    if (!was_cut) continue;
    give_up(m, how);
    m.second.go_on();
    CHECK(m.second.expect("lost cut") == "lost cut cancelled_by_peer");
    m.take(1, "next");
    m.offer(0, "next", 2);
    m.check_transfer(1, "next 2");
    m.first.expect("gave next");
    m.check_canaries();
    m.check_up();
  }
  CHECK(was_cut);
}

/// The receiver gives up while the sender is stopped in mid-transfer.
void stop_sender(engine_kind e, const giving_up& how) {
  bool was_cut = false;
  for (int attempt = 0; attempt < attempts && !was_cut; ++attempt) {
    two_members m(e, way::asked);
    was_cut = m.begin_and_stop(0, how.limit);
    if (!was_cut) continue;
    give_up(m, how);
    m.second.go_on();
    // Nothing is lost: the message is the next receive's.
    m.take(0, "next");
    m.check_transfer(0, "next 1");
    m.second.expect("gave cut");
    m.check_canaries();
    m.check_up();
  }
  CHECK(was_cut);
}

/// The world breaks while the second member is stopped in mid-transfer; a fresh one takes
/// its rank, and the stopped one goes on beside the new world.
void break_it(engine_kind e, way w, int receiver) {
  bool was_cut = false;
  for (int attempt = 0; attempt < attempts && !was_cut; ++attempt) {
    two_members m(e, w, true);
    was_cut = m.begin_and_stop(receiver, "");
    if (!was_cut) continue;
    CHECK(m.first.expect("lost cut") == "lost cut silent_peer");
    m.first.expect("over held silent_peer 1");
    process fresh = m.here.worker("held", settings(w, true));
    m.first.order("world held 0 2");
    m.first.expect("formed held");
    m.first.order("stream held 1 65536 2000");
    m.second.go_on();
    fresh.order("drain held 0 65536 2000");
    CHECK(fresh.expect("drained held") == "drained held 2000");
    m.second.expect_one_of({"lost cut", "mixed cut", "took cut"});
    m.second.expect("over held silent_peer 1");
    CHECK_FALSE(m.second.has_said("took cut"));
    CHECK_FALSE(m.second.has_said("mixed cut"));
    m.check_canaries();
    // Once more in the new world, both ways.
    m.first.order("echo held 1 64");
    fresh.order("send held 0 0 hello");
    fresh.order("recv held 0 0");
    CHECK(fresh.expect("got held") == "got held 0 hello");
    CHECK_FALSE(m.first.has_said("over held"));
    CHECK_FALSE(fresh.has_said("over held"));
    CHECK(m.first.end() == 0);
    CHECK(m.second.end() == 0);
    CHECK(fresh.end() == 0);
  }
  CHECK(was_cut);
}

}  // namespace

TEST_CASE(
    "law 4: a stopped receiver that continues takes nothing of a send that was given "
    "up") {
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    for (const way w : {way::read, way::asked}) {
      CAPTURE(w == way::asked);
      stop_receiver(e, w, by_cancelling);
      stop_receiver(e, w, by_a_deadline);
    }
  }
}

TEST_CASE(
    "law 4: a stopped sender that continues touches nothing of a receive that was given "
    "up") {
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    stop_sender(e, by_cancelling);
    stop_sender(e, by_a_deadline);
  }
}

TEST_CASE("law 4: ... nor of one that read from its memory") {
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    two_members m(e, way::read);
    m.offer(1, "cut", 1);
    m.first.order("arrival held 1");
    m.first.expect("arrived held");
    m.second.stop();
    // Reading needs no help from the other end; it is given up where a quarter has come.
    m.take(0, "cut", "quarter");
    CHECK(m.first.expect_one_of({"lost cut", "took cut"}) == "lost cut cancelled");
    m.second.go_on();
    m.take(0, "next");
    m.check_transfer(0, "next 1");
    m.second.expect("gave cut");
    m.check_canaries();
    m.check_up();
  }
}

TEST_CASE(
    "law 4: a peer stopped in mid-transfer touches nothing after its world broke, nor "
    "the "
    "next of that name") {
  if (testing::reading_is_refused_here()) return;
  for (const engine_kind e : engines()) {
    CAPTURE(name_of(e));
    break_it(e, way::read, 1);
    break_it(e, way::asked, 1);
    break_it(e, way::asked, 0);
  }
}

TEST_SUITE_END();

}  // namespace manyworlds::process_tests
