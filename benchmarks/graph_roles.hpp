// What the instances of mwbench-graph's jobs do, and what they leave in files.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

/// When something was, by the clock of this machine.
using stamps = std::vector<std::chrono::steady_clock::time_point>;

/// An instance that does nothing: it leaves a file with its process and the moment of its
/// first step in that folder, under its name and incarnation.
int step_once(const std::string& folder);
/// One that answers: ready after a second, as if a model were loaded, each answer takes
/// 10 ms.
int generate();
/// Asks them in steps of twelve answers, and stamps each step in that file.
int train(const std::string& file);
/// Exchanges eight bytes each millisecond with its peer at the edge "beat"; the one of
/// `from` stamps each exchange in that file.
int beat(const std::string& file);

/// Returns what the incarnations of an instance have stamped in a file, in their order.
stamps read_stamps(const std::string& file);
