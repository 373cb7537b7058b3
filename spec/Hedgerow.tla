------------------------------ MODULE Hedgerow ------------------------------
(* SPDX-License-Identifier: Apache-2.0
   The whole: nodes with a kernel part and a process each, and everything they have sent. ./dev tla checks the models of
   models.toml with TLC. *)
EXTENDS Process

Init ==
  /\ led = [t \in Terms |-> {}]
  /\ leaderLog = [t \in Terms |-> <<>>]
  /\ acks = [t \in Terms |-> [n \in Nodes |-> 0]]
  /\ committed = [t \in Terms |-> 0]
  /\ tally = [n \in Nodes |-> {}]
  /\ promised = [n \in Nodes |-> Silent]
  /\ log = [n \in Nodes |-> <<>>]
  /\ term = [n \in Nodes |-> 0]
  /\ vote = [n \in Nodes |-> NoNode]
  /\ role = [n \in Nodes |-> "follower"]
  /\ phase = [n \in Nodes |-> "free"]
  /\ upto = [n \in Nodes |-> 0]
  /\ shared = [n \in Nodes |-> Blank]
  /\ ring = [n \in Nodes |-> <<>>]
  /\ limbo = [n \in Nodes |-> NoRecord]

Next == \E n \in Nodes : KernelStep(n) \/ ProcessStep(n)
Spec == Init /\ [][Next]_vars

\* What must be possible, or the rest says nothing: models of the set "reached" check that TLC finds a way to break these.
\* Ring order is not log order; an entry that a majority has acknowledged is nowhere on this node but in the ring; every term
\* has had its leader and something acknowledged in it.
NeverOutOfOrder ==
  \A n \in Split : \A i, j \in 1 .. Len(ring[n]) :
    i < j /\ ring[n][i].kind = "append" /\ ring[n][j].kind = "append" => ring[n][i].index < ring[n][j].index
NeverOnlyInTheRing ==
  \A n \in Split : \A t \in Terms : \A r \in Pending(n) :
    ~(r.st = "full" /\ r.kind = "append" /\ r.term = t /\ Len(log[n]) < r.index /\ r.index <= committed[t])
NeverAllTermsLed == \E t \in Terms : led[t] = {} \/ committed[t] = 0

\* Nodes of one kind may change places.
Symmetry == Permutations(Split) \union Permutations(Nodes \ Split)

-----------------------------------------------------------------------------
(* States that differ only in what can make no difference any more are one to TLC (VIEW). That is:
   - of a term that every node has left, what its leader sent and what was acknowledged, but for what a majority
     acknowledged: no node takes or answers an append of it any more;
   - the vote of a node that acts as one in a term that has its leader: it votes there no more;
   - what such a node promised: it is in its term and vote. *)
IsOver(t) ==
  \A n \in Nodes : phase[n] = "gone" \/ (term[n] > t /\ \A r \in Pending(n) : r.kind = "append" => r.term > t)
Essence ==
  << [t \in Terms |-> IF IsOver(t) THEN <<{}, CommittedLog(t)>> ELSE <<led[t], leaderLog[t], acks[t]>>],
     committed, tally, [n \in Split |-> promised[n]],
     log, term,
     [n \in Nodes |-> IF n \notin Split /\ role[n] = "follower" /\ term[n] > 0 /\ led[term[n]] # {} THEN NoNode
                      ELSE vote[n]],
     role, phase, upto, shared, ring, limbo >>
=============================================================================
