#include "fail_roles.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <optional>
#include <stdexcept>

#include "relay.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t message_bytes = 64 << 10;

mw::task<void> give_stream(member& m) {
  mw::world w = m.describe("healthy", 1);
  std::vector<char> memory(message_bytes, 'x');
  co_await w;
  for (std::uint64_t number = 0;; ++number) {
    co_await w.send(memory, mw::to{0}, {}, mw::user_word(number));
  }
}

/// Waits in the world for the fault, and then for the leader to end this process. The
/// end of a process that is cut off would end the connections of its relay, which is no
/// silence.
mw::task<void> be_victim(member& m, const fail_options& o, int number) {
  const mw::rank_t rank = o.members - 1;
  mw::world w;
  co_await join_victim(m, o, rank, number, w);
  (void)co_await w.broken();
  mw::event never;
  co_await never;
}

mw::task<void> survive(member& m, const fail_options& o, mw::rank_t rank) {
  mw::world control = m.describe("survivors", rank, o.members - 1);
  co_await control;
  mw::world w;
  co_await join_victim(m, o, rank, 0, w);
  for (int number = 1;; ++number) {
    char byte = 0;
    const auto got =
        co_await mw::outcome(w.recv(std::span(&byte, 1), mw::from{o.members - 1}));
    const std::int64_t noticed = now_ns();
    if (got) throw std::logic_error("a victim has sent a message");
    co_await join_victim(m, o, rank, number, w);
    co_await control.send_message(noticed, mw::to{0});
  }
}

/// Waits for its turn. Its parent also says when it is cut off.
void be_a_victim(common_options& common, const fail_options& o, int number) {
  line parent = line::to_parent();
  std::optional<relay> network;
  std::optional<doorway> door;
  if (o.fault == "cut") {
    door.emplace(mw::socket_address::loopback(0));
    common.advertise = door->address().text();
    // The same port of another loopback address is free.
    common.listen = fmt::format("127.0.0.2:{}", door->address().port());
  }
  member m(common);
  parent.signal();
  parent.wait();
  if (door) {
    network.emplace(std::move(*door), *mw::socket_address::parse(common.listen),
                    parent.fd());
  }
  m.runtime().run(be_victim(m, o, number));
}

}  // namespace

mw::task<void> take_stream(mw::world& w, gaps& seen) {
  std::vector<char> memory(message_bytes);
  for (std::uint64_t expected = 0;; ++expected) {
    const auto got = co_await w.recv(memory, mw::from{1});
    if (got.user.value() != expected)
      throw std::logic_error("the healthy world lost one");
    seen.message_came();
  }
}

mw::task<void> join_victim(member& m, const fail_options& o, mw::rank_t rank, int number,
                           mw::world& into) {
  const bool is_victim = rank == o.members - 1;
  std::vector<mw::world> links;
  if (o.fault == "cut") {
    // Rank 0 of a world dials the others.
    for (mw::rank_t r = 0; r < o.members - 1; ++r) {
      if (!is_victim && r != rank) continue;
      links.push_back(
          m.describe(fmt::format("link/{}/{}", number, r), is_victim ? 1 : 0));
    }
    co_await form_all(links);
  }
  into = m.describe("victim", rank, o.members);
  co_await into;
  co_await leave_all(links);
}

mw::task<void> until_ready(line& from) {
  char byte = 0;
  for (;;) {
    const auto got = ::recv(from.fd(), &byte, 1, MSG_DONTWAIT);
    if (got == 1) co_return;
    if (got == 0) throw std::runtime_error("a member has died before its turn");
    co_await mw::sleep_for(1ms);
  }
}

void take_role(common_options& common, const fail_options& options) {
  const std::string_view role = common.role;
  const std::size_t slash = role.find('/');
  const std::string_view name = role.substr(0, slash);
  const int number =
      slash == role.npos ? 0 : std::stoi(std::string(role.substr(slash + 1)));
  if (name == victim_role) return be_a_victim(common, options, number);
  member m(common);
  if (name == bystander_role) {
    m.runtime().run(give_stream(m));
  } else {
    m.runtime().run(survive(m, options, number));
  }
}

}  // namespace mwbench
