//! Engines of one text that hand requests to each other.

use launch::Launch;
use schemas::{engines::Engine, flags::Key};

use super::Context;

/// The other engines of the text that are `peers` and serve the target of this launch.
pub(super) fn peers_of<'a>(context: &Context<'a>, is_peer: impl Fn(&Launch) -> bool) -> Vec<&'a Launch> {
    let launch = context.launch;
    let Some(target) = launch.text(Key::ModelPath) else { return Vec::new() };
    let is_other = |other: &&Launch| other.engine == launch.engine && other.anchor != launch.anchor;
    let serves_it = |other: &&Launch| other.text(Key::ModelPath).is_some_and(|own| own.value == target.value);
    context.launches.iter().filter(is_other).filter(serves_it).filter(|other| is_peer(other)).collect()
}

/// The first peer, if every one of them differs: a text may show several pairs.
pub(super) fn if_all_differ<'a>(peers: &[&'a Launch], differs: impl Fn(&Launch) -> bool) -> Option<&'a Launch> {
    peers.first().copied().filter(|_| peers.iter().all(|peer| differs(peer)))
}

/// Whether a flag with a key is certainly not given.
pub(super) fn lacks(launch: &Launch, key: Key) -> bool {
    !launch.has(key) && !launch.perhaps.contains(&key) && launch.is_complete() && launch.engine != Engine::Slime
}
