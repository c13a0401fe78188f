// Records: a member's chronicle as lines of a file, which outlive it however it ends.
#pragma once

#include <sys/types.h>

#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/chronicle.hpp"

namespace manyworlds_tests::soak {

/// Each record is one line by one write: a killed process leaves all it had to tell, and
/// perhaps half a line. Processes are told by their pids. Any write that fails ends the
/// process.
class record_writer final : public chronicle {
 public:
  explicit record_writer(const std::string& path);
  ~record_writer() override;

  void complain(std::string what) override;
  void formed(world_entry entry) override;
  void leaving(std::size_t process, std::uint64_t instance, mw::time_point when) override;
  void broke(std::size_t process, std::uint64_t instance, const mw::failure& f,
             mw::time_point when) override;
  std::size_t started(op_entry op) override;
  void done(std::size_t op, mw::time_point when) override;
  void failed(std::size_t op, const mw::failure& f, mw::time_point when) override;
  void unwound(std::size_t op, mw::time_point when) override;
  void sent(const message_key& key, std::size_t op) override;
  void received(const message_key& key, std::uint64_t number, std::size_t bytes,
                mw::time_point when) override;

  /// `world::fail` is about to be called.
  void failing(const std::string& world);
  /// All worlds were left, and nothing is left of them.
  void ended();

 private:
  template <class... Values>
  void write(mw::time_point when, char kind, const Values&... values);

  int file_;
  std::size_t operations_ = 0;
};

/// What the records of one process tell beside its chronicle.
class record_listener {
 public:
  virtual ~record_listener() = default;
  [[nodiscard]] virtual std::size_t process_of(pid_t pid) const = 0;
  virtual void failing(const std::string& world, mw::time_point when) = 0;
  virtual void ended(std::size_t process) = 0;
};

/// Tells the chronicle of one process again, one record after the other.
class record_reader {
 public:
  record_reader(const std::string& path, std::size_t process);

  [[nodiscard]] bool is_at_end() const { return is_at_end_; }
  /// When the next record was written; only before the end.
  [[nodiscard]] mw::time_point next() const { return next_; }
  void tell_next(chronicle& to, record_listener& listener);

 private:
  void advance();

  std::ifstream file_;
  std::size_t process_;
  std::string line_;
  mw::time_point next_{};
  bool is_at_end_ = false;
  /// The chronicle's numbers of this process's operations.
  std::vector<std::size_t> operations_;
};

}  // namespace manyworlds_tests::soak
