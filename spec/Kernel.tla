------------------------------- MODULE Kernel -------------------------------
(* SPDX-License-Identifier: Apache-2.0
   The steps of a node's kernel programs for one datagram: a record is reserved in the ring, the decision is taken under
   the lock of R0, the record is submitted and the answer sent. Several programs run at once on several CPUs, so every
   step of one may come between two steps of another. Each decision is one of bpf/node/raft/take.h.

   The reservation is no step of its own here, because it changes nothing that a decision reads. Where in the ring it was
   made is told when it comes to a decision: anywhere before records that the process has not read, since the consumer
   stops at a record that is busy. A reservation that comes to nothing leaves no trace. *)
EXTENDS Cluster

Blank == [capable |-> FALSE, term |-> 0, vote |-> NoNode, index |-> 0, last |-> 0]

\* `record` is now decided, in a place that was reserved before those of the records from i on. If the process has read
\* the producer position already, and it lies behind that place, it waits for this record as for the others.
Places(n) ==
  {i \in 1 .. Len(ring[n]) + 1 : Len(ring[n]) < RingSlots /\ \A j \in i .. Len(ring[n]) : ring[n][j].st # "written"}
Insert(n, i, record) ==
  /\ ring' = [ring EXCEPT ![n] = SubSeq(@, 1, i - 1) \o <<record>> \o SubSeq(@, i, Len(@))]
  /\ upto' = [upto EXCEPT ![n] = IF i <= @ THEN @ + 1 ELSE @]

\* hr_node_take_append: the next entry of this term's leader, and of this term.
CanAppend(n, t) ==
  LET index == shared[n].index + 1
  IN /\ Mode = "memory" /\ shared[n].capable
     /\ t = shared[n].term /\ led[t] # {} /\ n \notin led[t]
     /\ index <= Len(leaderLog[t]) /\ leaderLog[t][index] = t
     /\ shared[n].last = LastTerm(SubSeq(leaderLog[t], 1, index - 1))
Appended(n, t) == [NoRecord EXCEPT !.st = "taken", !.kind = "append", !.term = t, !.index = shared[n].index + 1]

KernelTakesAppend(n, i, t) ==
  /\ CanAppend(n, t)
  /\ Insert(n, i, Appended(n, t))
  /\ shared' = [shared EXCEPT ![n].index = @ + 1, ![n].last = t]
  /\ Say(n, t, {})
  /\ UNCHANGED <<led, leaderLog, acks, committed, tally, stored, role, phase, limbo>>

\* hr_node_take_vote_request and hr_node_grant. In disk mode the kernel promises nothing: a vote must be on the disk first.
CanGrant(n, request) ==
  /\ Mode = "memory" /\ shared[n].capable
  /\ request.from # n
  /\ request.term > shared[n].term \/ (request.term = shared[n].term /\ shared[n].vote = NoNode)
  /\ UpToDate(request, shared[n].index, shared[n].last)

KernelGrants(n, i, request) ==
  /\ CanGrant(n, request)
  /\ Insert(n, i, [st |-> "taken", kind |-> "vote", term |-> request.term, index |-> 0, for |-> request.from])
  /\ shared' = [shared EXCEPT ![n].term = request.term, ![n].vote = request.from]
  /\ Say(n, request.term, {request.from})
  /\ UNCHANGED <<led, leaderLog, acks, committed, tally, stored, role, phase, limbo>>

\* Submitted first, answered then (R3). An answer that is sent later is an answer that is late on its way.
KernelAnswers(n, i) ==
  LET record == ring[n][i]
  IN /\ record.st = "taken"
     /\ ring' = [ring EXCEPT ![n][i].st = "full"]
     /\ UNCHANGED <<led, leaderLog, promised>>
     /\ IF record.kind = "append" THEN Acknowledge(n, record.term, record.index) /\ UNCHANGED tally
        ELSE GiveVote(n, record.term, record.for) /\ UNCHANGED <<acks, committed>>
     /\ UNCHANGED <<stored, process, shared, limbo>>

\* Planted: last_index moves and the answer leaves before there is a record for the entry.
KernelAnswersTooEarly(n, t) ==
  /\ Fault = "ack_before_store"
  /\ limbo[n] = NoRecord
  /\ CanAppend(n, t)
  /\ limbo' = [limbo EXCEPT ![n] = Appended(n, t)]
  /\ shared' = [shared EXCEPT ![n].index = @ + 1, ![n].last = t]
  /\ UNCHANGED <<led, leaderLog, tally, stored, process, ring>>
  /\ Acknowledge(n, t, shared[n].index + 1)
  /\ Say(n, t, {})
KernelStoresTooLate(n) ==
  /\ Fault = "ack_before_store"
  /\ limbo[n] # NoRecord
  /\ Len(ring[n]) < RingSlots
  /\ ring' = [ring EXCEPT ![n] = Append(@, [limbo[n] EXCEPT !.st = "full"])]
  /\ limbo' = [limbo EXCEPT ![n] = NoRecord]
  /\ UNCHANGED <<sent, stored, process, shared>>

KernelStep(n) ==
  \/ \E i \in Places(n) :
       \/ \E t \in Terms : KernelTakesAppend(n, i, t)
       \/ \E m \in Nodes : Asking(m) /\ KernelGrants(n, i, Request(m))
  \/ \E i \in 1 .. Len(ring[n]) : KernelAnswers(n, i)
  \/ \E t \in Terms : KernelAnswersTooEarly(n, t)
  \/ KernelStoresTooLate(n)
=============================================================================
