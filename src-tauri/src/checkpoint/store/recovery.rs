//! The newest checkpoint that training can go on from, past those that are damaged.

use std::path::PathBuf;

use super::error::Damage;
use super::folders::move_into;
use super::{Checkpoint, CheckpointStore, StoreError};
use crate::checkpoint::id::CheckpointId;
use crate::checkpoint::manifest::Grade;

/// What was found, from the newest checkpoint backwards.
#[derive(Debug)]
pub struct Recovery {
    /// The newest full checkpoint of which every byte is as it was written.
    pub chosen: Option<Checkpoint>,
    /// Damaged ones that were newer, the newest first.
    pub set_aside: Vec<SetAside>,
}

/// A damaged checkpoint, moved out of the way.
#[derive(Debug)]
pub struct SetAside {
    pub id: CheckpointId,
    pub moved_to: PathBuf,
    pub damage: Damage,
    /// Batches that have to be trained again without it; `None` when no good checkpoint is left.
    pub n_batches_lost: Option<u64>,
}

impl CheckpointStore {
    /// The newest checkpoint that is whole and resumable. Looks only: nothing is moved.
    ///
    /// # Errors
    /// When the folder cannot be read, or one of the checkpoints comes from a newer program.
    pub fn newest_whole(&self) -> Result<Option<Checkpoint>, StoreError> {
        let mut newest_first = self.list()?.into_iter().rev();
        Ok(newest_first.find(|checkpoint| checkpoint.grade() == Grade::Full && self.verify(checkpoint).is_ok()))
    }

    /// Looks for the newest full checkpoint that verifies. Damaged ones on the way are moved to `quarantine/`; nothing
    /// is deleted, and older ones are not looked at.
    ///
    /// # Errors
    /// [`StoreError::FutureVersion`] when one on the way comes from a newer program (nothing is moved then), or a
    /// failure to read or move.
    pub fn newest_good(&self) -> Result<Recovery, StoreError> {
        let mut damaged = Vec::new();
        let chosen = self.search(&mut damaged)?;
        let mut set_aside = Vec::new();
        for (id, damage) in damaged {
            let moved_to = move_into(&self.quarantine_folder(), &self.path_of(id))?;
            let n_batches_lost = chosen.as_ref().map(|chosen| id.n_batches - chosen.id().n_batches);
            set_aside.push(SetAside { id, moved_to, damage, n_batches_lost });
        }
        Ok(Recovery { chosen, set_aside })
    }

    /// The newest good full checkpoint; the damaged ones that are newer are added to `damaged`.
    fn search(&self, damaged: &mut Vec<(CheckpointId, Damage)>) -> Result<Option<Checkpoint>, StoreError> {
        for id in self.ids()?.into_iter().rev() {
            match self.open_whole(id) {
                Ok(checkpoint) if checkpoint.grade() == Grade::Full => return Ok(Some(checkpoint)),
                Ok(_) => {}
                Err(StoreError::Damaged { damage, .. }) => damaged.push((id, damage)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::checkpoint::manifest::{MANIFEST_FILE, WEIGHTS_FILE};
    use crate::checkpoint::store::fixture::{HARMS, draft, id, run_dir, save_each, spoil, store_in, weights_draft};

    #[test]
    fn the_newest_good_one_is_used_and_the_bad_one_set_aside() {
        let names = draft(id(1, 4)).files.into_iter().map(|(name, _)| name).chain([MANIFEST_FILE.to_owned()]);
        for name in names {
            for (harm_name, harm) in HARMS {
                let dir = run_dir();
                let store = store_in(&dir);
                save_each(&store, &[id(1, 4), id(2, 8), id(2, 11)]);
                spoil(&store.path_of(id(2, 11)).join(&name), harm);
                let recovery = store.newest_good().unwrap();
                assert_eq!(recovery.chosen.unwrap().id(), id(2, 8), "{name} {harm_name}");
                let [bad] = &recovery.set_aside[..] else { panic!("{name} {harm_name}: one is bad") };
                assert_eq!((bad.id, bad.n_batches_lost), (id(2, 11), Some(3)), "{name} {harm_name}");
                assert_eq!(bad.moved_to, store.quarantine_folder().join("e0002-b000011"));
                assert!(bad.moved_to.is_dir() && !store.path_of(id(2, 11)).exists(), "moved, not deleted");
                assert!(store.newest_good().unwrap().set_aside.is_empty(), "once");
            }
        }
    }

    #[test]
    fn several_bad_ones_are_passed_and_each_says_what_it_cost() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8), id(3, 12)]);
        fs::create_dir(store.path_of(id(4, 16))).unwrap();
        spoil(&store.path_of(id(3, 12)).join(WEIGHTS_FILE), HARMS[4].1);
        let recovery = store.newest_good().unwrap();
        assert_eq!(recovery.chosen.unwrap().id(), id(2, 8));
        let lost: Vec<_> = recovery.set_aside.iter().map(|bad| (bad.id.epoch, bad.n_batches_lost)).collect();
        assert_eq!(lost, [(4, Some(8)), (3, Some(4))]);
    }

    #[test]
    fn without_a_good_one_nothing_is_chosen_and_all_are_kept_aside() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        fs::create_dir_all(store.quarantine_folder().join("e0001-b000004")).unwrap();
        spoil(&store.path_of(id(1, 4)).join(WEIGHTS_FILE), HARMS[3].1);
        let recovery = store.newest_good().unwrap();
        assert!(recovery.chosen.is_none());
        assert_eq!(recovery.set_aside[0].n_batches_lost, None);
        assert_eq!(recovery.set_aside[0].moved_to, store.quarantine_folder().join("e0001-b000004-2"));
        assert!(recovery.set_aside[0].moved_to.join(WEIGHTS_FILE).is_file(), "every byte is still there");
    }

    #[test]
    fn a_checkpoint_of_weights_alone_is_passed_and_stays() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4)]);
        store.save(&weights_draft(id(2, 8))).unwrap();
        let recovery = store.newest_good().unwrap();
        assert_eq!(recovery.chosen.unwrap().id(), id(1, 4));
        assert!(recovery.set_aside.is_empty() && store.path_of(id(2, 8)).exists());
    }

    #[test]
    fn a_newer_programs_checkpoint_is_refused_and_nothing_moves() {
        let dir = run_dir();
        let store = store_in(&dir);
        save_each(&store, &[id(1, 4), id(2, 8), id(3, 12)]);
        spoil(&store.path_of(id(3, 12)).join(WEIGHTS_FILE), HARMS[2].1);
        fs::write(store.path_of(id(2, 8)).join(MANIFEST_FILE), r#"{"version":2}"#).unwrap();
        assert!(matches!(store.newest_good(), Err(StoreError::FutureVersion { found: 2, .. })));
        assert!(store.path_of(id(3, 12)).exists() && !store.quarantine_folder().exists());
    }
}
