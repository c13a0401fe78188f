#include "rendezvous_nodes.hpp"

#include <signal.h>
#include <sys/socket.h>

#include <sstream>
#include <stdexcept>

#include "timing.hpp"

namespace mwbench {

namespace {

using namespace std::chrono_literals;

void tell(line& parent, const node_news& news) {
  // The parent reads whenever it waits, and this is little.
  if (::send(parent.fd(), &news, sizeof news, MSG_NOSIGNAL) != sizeof news)
    throw std::runtime_error("the process that measures is gone");
}

/// As it stands in a role, which is one argument.
std::string text_of(const meeting& where) {
  std::ostringstream text;
  text << where.nodes << ' ' << where.backend << ' ' << where.run << ' '
       << where.endpoint;
  return text.str();
}

meeting meeting_of(const std::string& text) {
  std::istringstream in(text);
  meeting where;
  in >> where.nodes >> where.backend >> where.run;
  std::getline(in >> std::ws, where.endpoint);
  return where;
}

mw::rendezvous_options options_of(const meeting& where) {
  mw::rendezvous_options how;
  how.backend = where.backend;
  how.endpoint = where.endpoint;
  how.run_id = where.run;
  how.limits.max_nodes = where.nodes;
  // One may be lost.
  how.limits.min_nodes = where.nodes - 1;
  return how;
}

mw::task<void> take_part(mw::rendezvous& meet, line& parent) {
  for (;;) {
    const mw::round r = co_await meet.next();
    const bool coordinates = meet.is_coordinator();
    tell(parent,
         {now_ns(), r.number, static_cast<std::uint32_t>(r.nodes.size()), coordinates});
    co_await meet.changed();
  }
}

mw::task<void> live(mw::runtime& rt, const meeting& where, line& parent) {
  mw::rendezvous meet(rt, options_of(where), mw::node_description("127.0.0.1", 1));
  parent.signal();
  parent.wait();
  bool is_alone = false;
  try {
    auto body = [&]() -> mw::task<void> { return take_part(meet, parent); };
    co_await meet.run(body);
  } catch (const mw::rendezvous_error& e) {
    if (e.kind() != mw::rendezvous_error_kind::no_coordinator) throw;
    is_alone = true;
  }
  if (is_alone) tell(parent, {now_ns(), 0, 0, 0});
}

}  // namespace

node::node(const common_options& common, const meeting& where) {
  std::vector<std::string> arguments = common.arguments;
  arguments.insert(arguments.end(), {"--store", "none", "--role", text_of(where)});
  process_ = child(arguments);
  process_.line().wait();
}

std::int64_t node::kill() {
  const std::int64_t at = now_ns();
  ::kill(process_.pid(), SIGKILL);
  process_.end();
  return at;
}

node_news node::next() {
  node_news news;
  if (::recv(process_.line().fd(), &news, sizeof news, MSG_WAITALL) != sizeof news)
    throw std::runtime_error("a node has ended before its round");
  coordinates_ = news.coordinates != 0;
  return news;
}

void be_node(const common_options& common) {
  line parent = line::to_parent();
  mw::runtime rt(runtime_options_of(common));
  rt.run(live(rt, meeting_of(common.role), parent));
}

}  // namespace mwbench
