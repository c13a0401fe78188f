// Ranks as processes of their own, so that tests can kill them; each runs a scenario of
// the same program, and talks with its test over a socket.
#pragma once

#include <nccl.h>

#include <string>
#include <vector>

namespace conformance {

/// One rank's side of a scenario.
class rank {
 public:
  rank(int index, int count, int line) : index_(index), count_(count), line_(line) {}

  int index() const { return index_; }
  int count() const { return count_; }

  /// Tells the test where this rank is.
  void say(char word) const;
  /// Waits for the test's word.
  void hear(char word) const;
  /// The same id on all ranks; the first makes it. All must ask equally often.
  ncclUniqueId shared_id() const;
  /// The two halves of it, for an id that another call made.
  void send_id(const ncclUniqueId& id) const;
  ncclUniqueId received_id() const;

 private:
  int index_;
  int count_;
  int line_;
};

/// What the ranks of a test do. Define it at namespace scope: the rank's process finds it
/// by name.
class scenario {
 public:
  using body = void (*)(rank&);
  scenario(const char* name, body run);
  const char* name() const { return name_; }
  static void run(const std::string& name, rank& me);

 private:
  const char* name_;
};

/// Defines a scenario: what each rank, `me`, does.
#define SCENARIO_OF_RANKS(name)                           \
  void name##_of([[maybe_unused]] conformance::rank& me); \
  const conformance::scenario name{#name, &name##_of};    \
  void name##_of([[maybe_unused]] conformance::rank& me)

/// The processes of one test. Those left are killed at its end.
class crew {
 public:
  crew(const scenario& plot, int count, std::vector<std::string> environment = {});
  ~crew();
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;

  /// Hands the first rank's id to the others.
  void share_id();
  /// Waits until rank `index` says `word`; false when it says another or nothing in 30 s.
  bool said(int index, char word);
  void tell(int index, char word);
  void tell_all(char word);
  void kill(int index);
  /// Waits for its end; true when all its checks held.
  bool ended_well(int index);
  bool all_ended_well();
  /// Waits for its end; true when it aborted, with `text` on its standard error.
  bool aborted_saying(int index, const std::string& text);

 private:
  struct member {
    int pid = -1;
    int line = -1;
    int errors = -1;
    int status = -1;
  };
  void start(const scenario& plot, int index, std::vector<std::string> environment);
  static bool wait(member& m);
  static std::string errors_of(const member& m);

  std::vector<member> members_;
};

}  // namespace conformance
