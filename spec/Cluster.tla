------------------------------ MODULE Cluster ------------------------------
(* SPDX-License-Identifier: Apache-2.0
   What every part of the specification shares: constants, variables, what has been sent, and what must hold.
   Kernel.tla has the steps of a node's kernel programs, Process.tla those of its process, Hedgerow.tla puts them
   together. README.md says how to read it and what is left out. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Nodes,      \* the voters
  Split,      \* those of them whose kernel and process act apart, step by step; the others act as one
  MaxTerm, MaxLength, RingSlots,
  Mode,       \* "memory" or "disk"
  Fault,      \* "none", or the name of a planted mistake
  NoNode

Terms == 1 .. MaxTerm
Silent == [term |-> 0, votes |-> {}]
NoRecord == [st |-> "none", kind |-> "none", term |-> 0, index |-> 0, for |-> NoNode]

VARIABLES
  \* What was sent. An append arrives at any time, in any order, often or never.
  led,        \* led[t]: the nodes that became leader of term t
  leaderLog,  \* leaderLog[t]: the log of t's leader; every piece of it may be in an append
  acks,       \* acks[t][n]: up to where n has acknowledged the log of t's leader, above committed[t]; else 0
  committed,  \* committed[t]: up to where a majority has acknowledged that log
  tally,      \* tally[n]: whose votes candidate n has been given, its own left out
  promised,   \* promised[n]: the highest term that n has promised anything in, and the candidates that it has given its vote there
  \* What a node's storage holds: a disk, or in memory mode the page cache. An entry is the term it was made in.
  log, term, vote,
  \* A node's process.
  role,       \* "follower", "candidate", "leader"
  phase,      \* "open", "draining", "free": see Process.tla; "gone": its identity is used up
  upto,       \* "draining": how many of the ring's records are still to be drained
  \* A node's kernel part: the element of R0, and the ring.
  shared,       \* [capable, term, vote, index, last]
  ring,       \* records in the order of their reservation
  limbo       \* planted mistakes: a record that is neither in the ring nor in what is stored

sent == <<led, leaderLog, acks, committed, tally, promised>>
stored == <<log, term, vote>>
process == <<role, phase, upto>>
kernel == <<shared, ring>>
vars ==
  <<led, leaderLog, acks, committed, tally, promised, log, term, vote, role, phase, upto, shared, ring, limbo>>

-----------------------------------------------------------------------------
Max(a, b) == IF a > b THEN a ELSE b
IsQuorum(some) == 2 * Cardinality(some) > Cardinality(Nodes)
LastTerm(l) == IF l = <<>> THEN 0 ELSE l[Len(l)]
IsPrefix(a, b) == Len(a) <= Len(b) /\ a = SubSeq(b, 1, Len(a))

\* Raft section 5.4.1; hr_raft_log_up_to_date of bpf/node/raft/decisions_abi.h.
UpToDate(request, index, last) ==
  IF request.last # last THEN request.last > last ELSE request.index >= index

\* What a candidate asks for as long as it is one. A request that arrives later is left out: to grant it would help no candidate, and the
\* voter would be as if it had lost what was sent to it in lower terms.
Asking(n) == role[n] = "candidate"
Request(n) == [term |-> term[n], from |-> n, index |-> Len(log[n]), last |-> LastTerm(log[n])]

\* What a promise binds is settled when it is decided, under the lock or by the process; its answer may be sent later.
Say(n, t, candidates) ==
  promised' = [promised EXCEPT ![n] = [term |-> t, votes |-> candidates \union (IF t = @.term THEN @.votes ELSE {})]]

\* The vote reaches its candidate, if that still is one; a node that votes is none any more.
GiveVote(n, t, candidate) ==
  tally' = [m \in Nodes |-> IF m = n THEN {}
                               ELSE IF m = candidate /\ Asking(m) /\ term[m] = t THEN tally[m] \union {n} ELSE tally[m]]

\* Acknowledgements are cumulative, and only an entry of the leader's own term is committed by counting them (Raft section 5.4.2), so
\* nothing else is remembered of them, and their senders only until there are enough. Whether the leader, or its kernel, ever counts them
\* makes no difference to what must be kept.
Acknowledge(n, t, index) ==
  LET reached == [acks[t] EXCEPT ![n] = IF leaderLog'[t][index] = t THEN Max(@, index) ELSE @]
      counted == {i \in committed[t] + 1 .. index :
                    leaderLog'[t][i] = t /\ IsQuorum({m \in Nodes : reached[m] >= i})}
      most == IF counted = {} THEN committed[t] ELSE CHOOSE i \in counted : \A j \in counted : j <= i
  IN /\ committed' = [committed EXCEPT ![t] = most]
     /\ acks' = [acks EXCEPT ![t] = [m \in Nodes |-> IF reached[m] > most THEN reached[m] ELSE 0]]

-----------------------------------------------------------------------------
\* The records that are in the ring, submitted or about to be, and the log as the kernel has promised it.
Pending(n) == {ring[n][i] : i \in 1 .. Len(ring[n])}
RECURSIVE Extended(_, _)
Extended(l, records) ==
  LET next == {r \in records : r.kind = "append" /\ r.index = Len(l) + 1}
  IN IF next = {} THEN l ELSE Extended(Append(l, (CHOOSE r \in next : TRUE).term), records)
HeldLog(n) == Extended(log[n], Pending(n))

CommittedLog(t) == SubSeq(leaderLog[t], 1, committed[t])

\* The lowest term that n's kernel, or its process, would answer a heartbeat in: an answer says "I know of no later one".
Answers(n) ==
  (IF shared[n].capable THEN {shared[n].term} ELSE {}) \union
  (IF phase[n] # "free" THEN {} ELSE {term[n]})

-----------------------------------------------------------------------------
\* What must hold.

\* Raft section 5.2.
ElectionSafety == \A t \in Terms : Cardinality(led[t]) <= 1

\* R7, across kernel and process, across restarts of either.
OneVotePerTerm == \A n \in Nodes : Cardinality(promised[n].votes) <= 1

\* Raft section 5.3: of what nodes hold, in their storage or in the ring, and of what leaders have sent.
Logs == {HeldLog(n) : n \in Nodes} \union {leaderLog[t] : t \in Terms}
LogMatching ==
  \A a, b \in Logs : \A i \in 1 .. (IF Len(a) < Len(b) THEN Len(a) ELSE Len(b)) :
    a[i] = b[i] => SubSeq(a, 1, i) = SubSeq(b, 1, i)

\* Raft section 5.4: what a majority has acknowledged is in the log of every later leader.
LeaderCompleteness ==
  \A t, u \in Terms : t < u /\ led[u] # {} => IsPrefix(CommittedLog(t), leaderLog[u])

\* Nothing that a majority has acknowledged is lost: whatever majority comes together, one of it holds it.
AcknowledgedIsHeld ==
  \A t \in Terms : committed[t] > 0 =>
    LET without == {n \in Nodes : phase[n] # "gone" /\ ~IsPrefix(CommittedLog(t), HeldLog(n))}
    IN ~IsQuorum(without)

\* R7 as others see it: no node speaks in a term below one in which it has promised something. ReadIndex needs this.
TermsNeverGoDown == \A n \in Nodes : \A t \in Answers(n) : t >= promised[n].term
TermsOnlyGrow ==
  [][\A n \in Nodes : phase'[n] = "gone" \/ (promised'[n].term >= promised[n].term /\ term'[n] >= term[n])]_vars

\* R8, reads without a leader: a process says where its log ends once it has taken back what is its kernel's.
SaysItsEnd(n) == phase[n] \in IF Fault = "end_without_fence" THEN {"open", "free"} ELSE {"free"}
Reaches(n, index, last) ==
  IF Fault = "end_by_index" THEN Len(log[n]) >= index
  ELSE UpToDate([index |-> Len(log[n]), last |-> LastTerm(log[n])], index, last)

\* One of any majority reaches what is committed. It holds that from then on (LeaderCompleteness), so the members may answer one
\* after the other.
ReadsReachWhatIsCommitted ==
  \A t \in Terms : committed[t] > 0 =>
    LET short == {n \in Nodes : SaysItsEnd(n) /\ ~Reaches(n, committed[t], t)}
    IN IF Fault = "end_of_one" THEN short = {} ELSE ~IsQuorum(short)

\* A log that ends as far holds it: the reader whose own log is the furthest of a majority lacks nothing.
FurthestHoldsWhatIsCommitted ==
  \A t \in Terms : \A n \in Nodes :
    committed[t] > 0 /\ SaysItsEnd(n) /\ Reaches(n, committed[t], t) => IsPrefix(CommittedLog(t), log[n])

\* The kernel knows what the process knows and what it has put into the ring, nothing else; so the ring is enough for a
\* process that starts again.
SharedStateIsCovered ==
  \A n \in Nodes : shared[n].capable =>
    LET held == HeldLog(n)
        given == {r \in Pending(n) : r.kind = "vote" /\ r.term = shared[n].term}
    IN /\ shared[n].index = Len(held) /\ shared[n].last = LastTerm(held)
       /\ IF given = {} THEN shared[n].term = term[n] /\ shared[n].vote = vote[n]
          ELSE \A r \in given : shared[n].vote = r.for
=============================================================================
