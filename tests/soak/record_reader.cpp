#include <sstream>
#include <stdexcept>

#include "soak/records.hpp"

namespace manyworlds_tests::soak {

namespace {

/// The words of one record, in the order in which they were written.
class words {
 public:
  explicit words(const std::string& line) : in_(line) {}

  template <class T>
  T take() {
    T value{};
    if (!(in_ >> value)) throw std::runtime_error("a bad record: " + in_.str());
    return value;
  }
  template <class T>
  void take_into(T& value) {
    value = take<T>();
  }
  mw::time_point time() { return mw::time_point(mw::duration(take<std::int64_t>())); }
  std::string rest() {
    std::string text;
    in_.get();
    std::getline(in_, text);
    return text;
  }

  message_key key() {
    message_key k;
    take_into(k.world);
    take_into(k.epoch);
    take_into(k.id);
    take_into(k.source);
    take_into(k.target);
    take_into(k.lane);
    return k;
  }

  mw::failure failure() {
    mw::failure f;
    f.cause = static_cast<mw::cause>(take<int>());
    take_into(f.rank);
    take_into(f.world_instance);
    take_into(f.epoch);
    f.operation = static_cast<mw::operation_kind>(take<int>());
    take_into(f.peer.pid);
    f.noticed_after = mw::duration(take<std::int64_t>());
    const std::string world = take<std::string>();
    if (world != "-") f.world = mw::world_name(world);
    f.detail = rest();
    return f;
  }

  op_entry operation(mw::time_point when) {
    op_entry op;
    op.started = when;
    take_into(op.instance);
    op.kind = static_cast<mw::operation_kind>(take<int>());
    take_into(op.peer);
    take_into(op.lane);
    take_into(op.number);
    op.delivered = take<int>() != 0;
    op.may_be_given_up = take<int>() != 0;
    op.may_disagree_in_size = take<int>() != 0;
    const auto limit = take<std::int64_t>();
    if (limit >= 0) op.limit = mw::duration(limit);
    return op;
  }

  world_entry world(mw::time_point when, const record_listener& listener) {
    world_entry e;
    e.formed = when;
    take_into(e.instance);
    take_into(e.name);
    take_into(e.epoch);
    take_into(e.id);
    take_into(e.rank);
    for (auto size = take<std::size_t>(); size > 0; --size) {
      e.members.push_back(listener.process_of(take<pid_t>()));
    }
    return e;
  }

 private:
  std::istringstream in_;
};

}  // namespace

record_reader::record_reader(const std::string& path, std::size_t process)
    : file_(path), process_(process) {
  advance();
}

void record_reader::advance() {
  // The last line of a killed process may be cut short.
  is_at_end_ = !std::getline(file_, line_) || file_.eof();
  if (!is_at_end_) next_ = words(line_).time();
}

void record_reader::tell_next(chronicle& to, record_listener& listener) {
  words in(line_);
  const mw::time_point when = in.time();
  const auto operation = [&] { return operations_.at(in.take<std::size_t>()); };
  switch (in.take<char>()) {
    case 'c':
      to.complain(in.rest());
      break;
    case 'w': {
      world_entry e = in.world(when, listener);
      e.process = process_;
      to.formed(std::move(e));
      break;
    }
    case 'l':
      to.leaving(process_, in.take<std::uint64_t>(), when);
      break;
    case 'b': {
      const auto instance = in.take<std::uint64_t>();
      to.broke(process_, instance, in.failure(), when);
      break;
    }
    case 'o': {
      op_entry op = in.operation(when);
      op.process = process_;
      operations_.push_back(to.started(std::move(op)));
      break;
    }
    case 'd':
      to.done(operation(), when);
      break;
    case 'f': {
      const std::size_t op = operation();
      to.failed(op, in.failure(), when);
      break;
    }
    case 'u':
      to.unwound(operation(), when);
      break;
    case 's': {
      const std::size_t op = operation();
      to.sent(in.key(), op);
      break;
    }
    case 'r': {
      const auto number = in.take<std::uint64_t>();
      const auto bytes = in.take<std::size_t>();
      to.received(in.key(), number, bytes, when);
      break;
    }
    case 'F':
      listener.failing(in.take<std::string>(), when);
      break;
    case 'e':
      listener.ended(process_);
      break;
    default:
      throw std::runtime_error("a bad record: " + line_);
  }
  advance();
}

}  // namespace manyworlds_tests::soak
