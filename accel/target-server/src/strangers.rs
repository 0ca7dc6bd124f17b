//! Who has connected and not proved yet to know the secret. There are few places for such, of each listener its own; whoever needs one when all
//! are taken gets that of the one that has it longest: a host that knows the secret needs it for moments, who only holds it loses it.

use exec::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use target_wire::Connection;

/// Places of one listener.
const PLACES: usize = 64;

/// Connections of one listener that have proved nothing, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strangers(Arc<Mutex<VecDeque<Arc<Connection>>>>);

impl Strangers {
    /// A place for a connection that has proved nothing.
    pub fn enter(&self, connection: &Connection) -> Stranger {
        // Without a second handle (out of descriptors) it can't be sent away, and so gets no place.
        let own = connection.try_clone().ok().map(Arc::new);
        let mut places = self.0.lock();
        match &own {
            Some(own) => places.push_back(own.clone()),
            None => connection.shut_down(),
        }
        if places.len() > PLACES {
            places.pop_front().into_iter().for_each(|oldest| oldest.shut_down());
        }
        drop(places);
        Stranger { places: self.clone(), own }
    }
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Stranger {
    places: Strangers,
    own: Option<Arc<Connection>>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            self.places.0.lock().retain(|other| !Arc::ptr_eq(other, own));
        }
    }
}
