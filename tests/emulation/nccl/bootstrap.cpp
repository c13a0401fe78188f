#include "bootstrap.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <thread>

namespace nccl_emulation {

namespace {

constexpr char id_magic[8] = {'e', 'm', 'u', 'n', 'c', 'c', 'l', '\0'};

// Members ask again for a root that is not yet there, as NCCL's sockets do.
constexpr int retry_ms = 2;

struct hello {
  int index;
  int count;
  member_card card;
};

struct attendance {
  std::vector<descriptor> members;
  std::vector<member_card> cards;
  int present = 0;

  void expect(int count) {
    if (!cards.empty()) return;
    members.resize(static_cast<std::size_t>(count));
    cards.resize(static_cast<std::size_t>(count));
  }
  bool complete() const {
    return !cards.empty() && present == static_cast<int>(cards.size());
  }
  void add(hello said, descriptor from) {
    expect(said.count);
    const auto index = static_cast<std::size_t>(said.index);
    if (said.index < 0 || index >= cards.size() || cards[index].rank != -1) return;
    cards[index] = said.card;
    if (cards[index].rank < 0) cards[index].rank = said.index;
    members[index] = std::move(from);
    ++present;
  }
  void tell_all(interrupts cut) {
    for (auto& member : members) {
      if (!member) continue;
      write_all(member.get(), cards.data(), cards.size() * sizeof(member_card), cut);
    }
  }
  bool everyone_left() const {
    if (present == 0) return false;
    for (const auto& member : members) {
      if (!member) continue;
      pollfd watched{member.get(), POLLRDHUP, 0};
      if (::poll(&watched, 1, 0) == 0) return false;
    }
    return true;
  }
};

void take_one(attendance& here, const descriptor& listener, interrupts cut) {
  auto member = accept_from(listener, cut);
  if (!member) return;
  hello said{};
  if (read_all(member.get(), &said, sizeof said, cut) != outcome::done) return;
  here.add(said, std::move(member));
}

void serve_root(const descriptor& listener) {
  constexpr int look_for_leavers_ms = 50;
  attendance here;
  while (!here.complete()) {
    const int patience = here.present == 0 ? -1 : look_for_leavers_ms;
    if (wait_ready(listener.get(), POLLIN, {}, patience) == outcome::done)
      take_one(here, listener, {});
    else if (here.everyone_left())
      return;
  }
  here.tell_all({});
}

std::optional<std::vector<member_card>> ask(const std::string& name, const hello& said,
                                            interrupts cut) {
  descriptor root;
  while (!(root = connect_to(name))) {
    if (sleep_for(retry_ms, cut) == outcome::interrupted) return {};
  }
  std::vector<member_card> cards(static_cast<std::size_t>(said.count));
  auto result = write_all(root.get(), &said, sizeof said, cut);
  if (result == outcome::done)
    result = read_all(root.get(), cards.data(), cards.size() * sizeof(member_card), cut);
  if (result == outcome::dead) result = wait_for_abort(cut);
  if (result != outcome::done) return {};
  return cut.raised() ? std::nullopt : std::optional{std::move(cards)};
}

}  // namespace

std::optional<std::string> open_root() {
  const auto name = fresh_name("root");
  auto listener = std::make_shared<descriptor>(listen_at(name));
  if (!*listener) return {};
  std::thread([listener] { serve_root(*listener); }).detach();
  return name;
}

ncclUniqueId id_of_root(const std::string& name) {
  ncclUniqueId id{};
  std::memcpy(id.internal, id_magic, sizeof id_magic);
  std::memcpy(id.internal + sizeof id_magic, name.data(), name.size());
  return id;
}

std::optional<std::string> root_of_id(const ncclUniqueId& id) {
  if (std::memcmp(id.internal, id_magic, sizeof id_magic) != 0) return {};
  return std::string{id.internal + sizeof id_magic};
}

std::optional<std::vector<member_card>> check_in(const std::string& name, int index,
                                                 int count, const member_card& own,
                                                 interrupts cut) {
  return ask(name, hello{index, count, own}, cut);
}

std::optional<std::vector<member_card>> meet(const std::string& name, int index,
                                             int count, const member_card& own,
                                             interrupts cut) {
  if (index != 0) return ask(name, hello{index, count, own}, cut);
  auto listener = listen_at(name);
  if (!listener) {
    wait_for_abort(cut);
    return {};
  }
  attendance here;
  here.expect(count);
  here.add(hello{0, count, own}, {});
  while (!here.complete() && !cut.raised()) take_one(here, listener, cut);
  if (!here.complete()) return {};
  here.tell_all(cut);
  return std::move(here.cards);
}

}  // namespace nccl_emulation
