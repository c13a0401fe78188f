#include "connection.hpp"

namespace emulated {

connection::turn connection::give() {
  std::lock_guard hold(mutex_);
  waiting_.push_back(++last_);
  return last_;
}

void connection::start(turn mine) {
  std::unique_lock hold(mutex_);
  changed_.wait(hold, [&] { return waiting_.front() == mine; });
  waiting_.pop_front();
  changed_.notify_all();
}

void connection::drop(turn mine) {
  std::lock_guard hold(mutex_);
  std::erase(waiting_, mine);
  changed_.notify_all();
}

}  // namespace emulated
