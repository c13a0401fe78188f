// A stream: a queue of work and, while there is work, the thread that does it in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "connection.hpp"
#include "moment.hpp"
#include "node.hpp"

namespace emulated {

class stream : public std::enable_shared_from_this<stream> {
 public:
  stream(int device, unsigned flags, int priority);

  const int device;
  const unsigned flags;
  const int priority;
  const unsigned long long id;

  // Waits for the legacy stream, and is waited for by it.
  bool blocking() const;

  // Starts the worker where none runs. Only `device` pushes: the legacy stream has a say.
  void push(node_ptr work);
  // It comes when all that was pushed before has run, or was dropped.
  void push(moment_ptr mark);

  // Something is queued or running.
  bool busy() const;

  // The handle is gone: the worker goes with the last of the work.
  void end();

  // What is queued will not run; what runs goes on.
  void drop_queued();
  // It had work when the process broke, or was given some since.
  bool lost_work() const;

 private:
  struct entry {
    node_ptr work;
    moment_ptr mark;
    connection::turn turn = 0;
  };

  void push(entry next);
  void start_worker();
  void work_on();

  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::deque<entry> queue_;
  bool has_worker_ = false;
  // From its first work on; null where each stream has its own.
  std::shared_ptr<connection> connection_;
  bool running_ = false;
  bool ended_ = false;
  bool lost_work_ = false;
};

using stream_ptr = std::shared_ptr<stream>;

}  // namespace emulated
