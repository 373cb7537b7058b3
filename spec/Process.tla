------------------------------ MODULE Process -------------------------------
(* SPDX-License-Identifier: Apache-2.0
   The steps of a node's process: the fence and the drain, Raft itself, death and start.

     open     the kernel may promise by itself (`capabilities`); the process only drains the ring
     draining `capabilities` is 0, since a control request under the lock or since a new process adopted the state; the producer
              position was read after that, and everything below it is being drained
     free     all is drained: what the kernel has promised is in the log, and the process may promise and change things

   A node that is not in Split is always free: its kernel part never acts, or acts and is drained in one step. *)
EXTENDS Kernel

\* What is written when the term becomes t.
SetTerm(n, t, candidate) ==
  /\ term' = [term EXCEPT ![n] = t]
  /\ vote' = [vote EXCEPT ![n] = candidate]
IsFree(n) == phase[n] = "free"

-----------------------------------------------------------------------------
\* R1: the fence, then the position. Between the two nothing can be decided any more, so they are one step.
Fence(n) ==
  /\ phase[n] = "open"
  /\ CASE Fault = "no_fence" -> phase' = [phase EXCEPT ![n] = "free"] /\ UNCHANGED <<shared, upto>>
       [] OTHER ->
            /\ phase' = [phase EXCEPT ![n] = "draining"]
            /\ shared' = IF Fault = "position_before_fence" THEN shared
                       ELSE [shared EXCEPT ![n].capable = FALSE]
            /\ upto' = [upto EXCEPT ![n] = Len(ring[n])]
  /\ UNCHANGED <<sent, stored, role, ring, limbo>>

\* While `capabilities` is 0 the rest of the shared state is not read before OPEN replaces it; the model forgets it.
Drained(n) ==
  /\ phase[n] = "draining" /\ upto[n] = 0
  /\ limbo[n] = NoRecord \/ Fault = "ack_before_store"
  /\ phase' = [phase EXCEPT ![n] = "free"]
  /\ upto' = [upto EXCEPT ![n] = 0]
  /\ shared' = [shared EXCEPT ![n] = Blank]
  /\ UNCHANGED <<sent, stored, role, ring, limbo>>

\* OPEN: the kernel takes over from a follower. In disk mode it answers heartbeats, and no more.
Open(n) ==
  /\ IsFree(n) /\ n \in Split /\ role[n] = "follower"
  /\ phase' = [phase EXCEPT ![n] = "open"]
  /\ shared' = [shared EXCEPT ![n] = [capable |-> TRUE, term |-> term[n], vote |-> vote[n], index |-> Len(log[n]),
                                  last |-> LastTerm(log[n])]]
  /\ UNCHANGED <<sent, stored, role, upto, ring, limbo>>

-----------------------------------------------------------------------------
\* R2. The consumer does not pass a record that is busy; of those before it, one whose predecessor is not in the log yet
\* waits. What the log has already was written by a process that died before it could release the record. The KernelBridge is
\* stricter: it feeds votes only behind a fence, after all appends, which is why it may skip records of older terms at a
\* start.
Write(n, record) ==
  IF Fault = "old_term_skipped" /\ record.term < term[n]
  THEN UNCHANGED <<log, term, vote>>
  ELSE IF record.kind = "append"
  THEN /\ record.index <= Len(log[n]) + 1
       /\ log' = IF record.index = Len(log[n]) + 1 THEN [log EXCEPT ![n] = Append(@, record.term)] ELSE log
       /\ UNCHANGED <<term, vote>>
  ELSE /\ UNCHANGED log
       /\ IF record.term >= term[n] THEN SetTerm(n, record.term, record.for)
          ELSE UNCHANGED <<term, vote>>

Draining(n) == phase[n] \in {"open", "draining"}
Drain(n, i) ==
  /\ Draining(n) /\ Fault # "release_before_write"
  /\ \A j \in 1 .. i : ring[n][j].st \in {"full", "written"}
  /\ ring[n][i].st = "full"
  /\ Write(n, ring[n][i])
  /\ ring' = [ring EXCEPT ![n][i].st = "written"]
  /\ UNCHANGED <<sent, process, shared, limbo>>
Released(n) ==
  /\ ring' = [ring EXCEPT ![n] = Tail(@)]
  /\ upto' = [upto EXCEPT ![n] = Max(@ - 1, 0)]
Release(n) ==
  /\ Draining(n)
  /\ ring[n] # <<>> /\ Head(ring[n]).st = "written"
  /\ Released(n)
  /\ UNCHANGED <<sent, stored, role, phase, shared, limbo>>

\* Planted: the record goes back to the kernel when it was read, as libbpf's consumer does it, and its entry is written
\* later.
ReleaseTooEarly(n) ==
  /\ Fault = "release_before_write" /\ Draining(n)
  /\ ring[n] # <<>> /\ Head(ring[n]).st = "full" /\ limbo[n] = NoRecord
  /\ Released(n)
  /\ limbo' = [limbo EXCEPT ![n] = Head(ring[n])]
  /\ UNCHANGED <<sent, stored, role, phase, shared>>
WriteTooLate(n) ==
  /\ Fault = "release_before_write" /\ Draining(n) /\ limbo[n] # NoRecord
  /\ Write(n, limbo[n])
  /\ limbo' = [limbo EXCEPT ![n] = NoRecord]
  /\ UNCHANGED <<sent, process, kernel>>

-----------------------------------------------------------------------------
\* Raft, by the process. What is promised is in storage before it is sent; the two are one step here, because a death
\* between them is a message that was lost.

\* Any higher term: a node that has heard of one takes it before it stands. A leader may have stepped down before.
Campaign(n, t) ==
  /\ IsFree(n) /\ t > term[n]
  /\ SetTerm(n, t, n)
  /\ role' = [role EXCEPT ![n] = "candidate"]
  /\ tally' = [tally EXCEPT ![n] = {}]
  /\ Say(n, t, {n})
  /\ UNCHANGED <<led, leaderLog, acks, committed, log, phase, upto, kernel, limbo>>

\* A node that acts as one need not vote in a term that has its leader: it would only lose what is sent in lower terms.
Vote(n, request) ==
  LET t == request.term
  IN /\ IsFree(n) /\ request.from # n
     /\ t > term[n] \/ (t = term[n] /\ vote[n] = NoNode)
     /\ (led[t] = {} \/ n \in Split)
     /\ UpToDate(request, Len(log[n]), LastTerm(log[n]))
     /\ SetTerm(n, t, request.from)
     /\ role' = [role EXCEPT ![n] = "follower"]
     /\ Say(n, t, {request.from})
     /\ GiveVote(n, t, request.from)
     /\ UNCHANGED <<led, leaderLog, acks, committed, log, phase, upto, kernel, limbo>>

\* A higher term is learned from any message; nothing is promised by it. For a node that acts as one it is as if what was
\* sent to it in lower terms were lost, so that it is left out there.
AdoptTerm(n, t) ==
  /\ IsFree(n) /\ n \in Split /\ t > term[n]
  /\ \E m \in Nodes : term[m] >= t
  /\ SetTerm(n, t, NoNode)
  /\ role' = [role EXCEPT ![n] = "follower"]
  /\ tally' = [tally EXCEPT ![n] = {}]
  /\ UNCHANGED <<led, leaderLog, acks, committed, promised, log, phase, upto, kernel, limbo>>

BecomeLeader(n) ==
  LET t == term[n]
  IN /\ IsFree(n) /\ role[n] = "candidate"
     /\ IsQuorum(tally[n] \union {n})
     /\ role' = [role EXCEPT ![n] = "leader"]
     /\ led' = [led EXCEPT ![t] = @ \union {n}]
     /\ leaderLog' = [leaderLog EXCEPT ![t] = log[n]]
     /\ tally' = [tally EXCEPT ![n] = {}]
     /\ UNCHANGED <<acks, committed, promised, stored, phase, upto, kernel, limbo>>

\* A leader that does not hear a majority. One that acts as one may as well fall silent.
StepDown(n) ==
  /\ IsFree(n) /\ n \in Split /\ role[n] # "follower"
  /\ role' = [role EXCEPT ![n] = "follower"]
  /\ tally' = [tally EXCEPT ![n] = {}]
  /\ UNCHANGED <<led, leaderLog, acks, committed, promised, stored, phase, upto, kernel, limbo>>

Propose(n) ==
  LET t == term[n]
      longer == Append(log[n], t)
  IN /\ IsFree(n) /\ role[n] = "leader" /\ Len(longer) <= MaxLength
     /\ log' = [log EXCEPT ![n] = longer]
     /\ leaderLog' = [leaderLog EXCEPT ![t] = longer]
     /\ Acknowledge(n, t, Len(longer))
     /\ Say(n, t, {})
     /\ UNCHANGED <<led, tally, term, vote, process, kernel, limbo>>

\* Raft section 5.3: entries prev+1 .. index of the log of t's leader; none if the two are equal.
TakeAppend(n, t, prev, index) ==
  LET theirs == SubSeq(leaderLog[t], 1, index)
      conflict == \E i \in prev + 1 .. index : i <= Len(log[n]) /\ log[n][i] # theirs[i]
      longer == SubSeq(log[n], 1, prev) \o SubSeq(theirs, prev + 1, index)
  IN /\ IsFree(n) /\ t >= term[n] /\ led[t] # {} /\ n \notin led[t]
     /\ prev <= Len(log[n]) /\ LastTerm(SubSeq(log[n], 1, prev)) = LastTerm(SubSeq(theirs, 1, prev))
     /\ SetTerm(n, t, IF t > term[n] THEN NoNode ELSE vote[n])
     /\ log' = IF conflict \/ index > Len(log[n]) THEN [log EXCEPT ![n] = longer] ELSE log
     /\ role' = [role EXCEPT ![n] = "follower"]
     /\ tally' = [tally EXCEPT ![n] = {}]
     /\ UNCHANGED <<led, leaderLog, phase, upto, kernel, limbo>>
     /\ Acknowledge(n, t, index)
     /\ Say(n, t, {})

-----------------------------------------------------------------------------
\* SIGKILL, and the next process. The one that died has done nothing for a while, and the kernel part went on answering
\* until its lease had passed or its program was detached, whenever that was: so much any process may do that lives. What
\* matters is the start: nothing is known but what is stored and in the ring, not even what of the ring was written; ADOPT
\* is a fence, and the whole ring is drained.
Restart(n) ==
  /\ n \in Split /\ phase[n] # "gone"
  /\ phase' = [phase EXCEPT ![n] = IF Fault = "undrained_start" THEN "free" ELSE "draining"]
  /\ shared' = [shared EXCEPT ![n].capable = FALSE]
  /\ upto' = [upto EXCEPT ![n] = Len(ring[n])]
  /\ role' = [role EXCEPT ![n] = "follower"]
  /\ tally' = [tally EXCEPT ![n] = {}]
  /\ ring' = [ring EXCEPT ![n] =
       [i \in 1 .. Len(@) |-> IF @[i].st = "written" THEN [@[i] EXCEPT !.st = "full"] ELSE @[i]]]
  /\ limbo' = IF Fault = "release_before_write" THEN [limbo EXCEPT ![n] = NoRecord] ELSE limbo
  /\ UNCHANGED <<led, leaderLog, acks, committed, promised, log, term, vote>>

\* The host starts anew. In memory mode nothing is left; the node may not use its old identity and is a voter no more.
\* In disk mode the disk is left.
Forget(n, next) ==
  /\ shared' = [shared EXCEPT ![n] = Blank]
  /\ ring' = [ring EXCEPT ![n] = <<>>]
  /\ limbo' = [limbo EXCEPT ![n] = NoRecord]
  /\ role' = [role EXCEPT ![n] = "follower"]
  /\ upto' = [upto EXCEPT ![n] = 0]
  /\ phase' = [phase EXCEPT ![n] = next]
  /\ tally' = [tally EXCEPT ![n] = {}]
  /\ UNCHANGED <<led, leaderLog, acks, committed>>
RebootMemory(n) ==
  /\ Mode = "memory" /\ n \in Split /\ phase[n] # "gone"
  /\ log' = [log EXCEPT ![n] = <<>>]
  /\ term' = [term EXCEPT ![n] = 0]
  /\ vote' = [vote EXCEPT ![n] = NoNode]
  /\ Forget(n, IF Fault = "old_identity" THEN "free" ELSE "gone")
  /\ promised' = IF Fault = "old_identity" THEN promised ELSE [promised EXCEPT ![n] = Silent]
RebootDisk(n) ==
  /\ Mode = "disk" /\ n \in Split
  /\ Forget(n, "draining")
  /\ vote' = IF Fault = "vote_forgotten" THEN [vote EXCEPT ![n] = NoNode] ELSE vote
  /\ UNCHANGED <<promised, log, term>>

ProcessStep(n) ==
  \/ Fence(n) \/ Drained(n) \/ Open(n)
  \/ Release(n) \/ ReleaseTooEarly(n) \/ WriteTooLate(n)
  \/ \E i \in 1 .. Len(ring[n]) : Drain(n, i)
  \/ BecomeLeader(n) \/ StepDown(n) \/ Propose(n)
  \/ \E m \in Nodes : Asking(m) /\ Vote(n, Request(m))
  \/ \E t \in Terms :
       \/ Campaign(n, t)
       \/ AdoptTerm(n, t)
       \/ \E index \in 1 .. Len(leaderLog[t]) : \E prev \in 0 .. index : TakeAppend(n, t, prev, index)
  \/ Restart(n) \/ RebootMemory(n) \/ RebootDisk(n)
=============================================================================
